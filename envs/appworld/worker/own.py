"""A module of the standard library that agent code cannot get at: another copy than the one that it imports.

Agent code runs in the process that writes its log and its answers, and may give `json.dumps` another body.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType


def copy_of(name: str) -> ModuleType:
    """With copies of the module's own parts, too; what `sys.modules` holds stays."""
    parts = [part for part in sys.modules if part == name or part.startswith(f"{name}.")]
    shared = {part: sys.modules.pop(part) for part in parts}
    try:
        return importlib.import_module(name)
    finally:
        for part in [part for part in sys.modules if part == name or part.startswith(f"{name}.")]:
            del sys.modules[part]
        sys.modules.update(shared)
