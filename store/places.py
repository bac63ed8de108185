"""Where this package keeps what can be made again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_dir() -> Path:
    """$COEVOLVE_CACHE, else $XDG_CACHE_HOME/coevolve, else ~/.cache/coevolve."""
    if own := os.environ.get("COEVOLVE_CACHE"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "coevolve"
