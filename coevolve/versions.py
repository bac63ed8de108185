"""Versions of this package and of what it runs on."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

COMPONENTS = ("coevolve", "duckdb", "langgraph", "langchain-core", "litellm", "torch", "transformers", "trl", "peft")


def versions() -> dict[str, str]:
    """{component: version} of what is installed."""
    found = {"python": platform.python_version()}
    for name in COMPONENTS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
