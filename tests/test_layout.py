"""The packages import under their own names from anywhere, and light ones stay light."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ["coevolve", "graphs", "envs", "training", "store", "evals"]


def python(code: str, cwd: Path) -> str:
    return subprocess.run([sys.executable, "-c", code], cwd=cwd, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("name", PACKAGES)
def test_the_name_is_ours(name: str, tmp_path: Path) -> None:
    """The names are generic, so another distribution may bring one too; only a fresh process outside shows it."""
    where = python(f"import {name}; print({name}.__file__)", tmp_path).strip()
    assert Path(where) == ROOT / name / "__init__.py"
    assert (ROOT / name / "py.typed").exists()


def test_help_imports_nothing_heavy(tmp_path: Path) -> None:
    code = "import sys, coevolve.cli; print(sorted(m for m in sys.modules if '.' not in m))"
    loaded = python(code, tmp_path)
    heavy = ["torch", "transformers", "trl", "litellm", "langgraph", "langchain_core", "duckdb", "pyarrow", "pydantic"]
    assert [name for name in heavy if f"'{name}'" in loaded] == []


def test_questions_import_no_graphs(tmp_path: Path) -> None:
    loaded = python("import sys, coevolve.questions; print(sorted(m for m in sys.modules if '.' not in m))", tmp_path)
    heavy = ["torch", "transformers", "litellm", "langgraph", "langchain_core"]
    assert [name for name in heavy if f"'{name}'" in loaded] == []


def test_everything_but_training_imports_without_the_train_extra(tmp_path: Path) -> None:
    """The base install has no torch: block the extra's packages and import every module but those of other venvs."""
    code = """
import importlib, pkgutil, sys
for name in ("torch", "transformers", "peft", "trl", "datasets", "accelerate", "gguf"):
    sys.modules[name] = None
for package in ("coevolve", "graphs", "envs", "store", "evals"):
    module = importlib.import_module(package)
    for info in pkgutil.walk_packages(module.__path__, package + "."):
        if not info.name.endswith("__main__") and info.name.split(".")[2:3] not in (["worker"], ["mini"]):
            importlib.import_module(info.name)
print("ok")
"""
    assert python(code, tmp_path).strip() == "ok"


def test_the_readme_is_short_and_its_tree_is_real() -> None:
    readme = (ROOT / "README.md").read_text()
    assert len(readme.splitlines()) < 120
    tree = readme.split("## The house")[1].split("```")[1]
    for line in tree.strip().splitlines():
        assert (ROOT / line.split()[0]).is_dir(), line
