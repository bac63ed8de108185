"""The embedding model of de-duplication and of the diversity curves: built from its name, imported when it is used.

wordllama   256-dimensional token embeddings (pip install 'coevolve[embed]': 19 MB, MIT); the weights are in the
            package, so it works without a network
none        no semantic stage, no spread, no clusters
"""

from __future__ import annotations

import logging
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from coevolve.config import Settings
from store.dedupe import Embed
from store.errors import UsageError

INSTALL = "run `pip install '.[embed]'` in the clone, or set dedupe.embedder = \"none\""


def resolved(settings: Settings) -> Settings:
    """The settings with `auto` replaced by what is installed: a run keeps the model that it was started with."""
    if settings.dedupe.embedder != "auto":
        return settings
    found = "wordllama" if find_spec("wordllama") else "none"
    return settings.model_copy(update={"dedupe": settings.dedupe.model_copy(update={"embedder": found})})


def embedder(settings: Settings) -> Embed | None:
    """UsageError if the model is not there."""
    name = resolved(settings).dedupe.embedder
    return _wordllama() if name == "wordllama" else None


@cache
def _wordllama() -> Embed:
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    try:
        wordllama: Any = import_module("wordllama")
    except ImportError as error:
        raise UsageError(f"dedupe.embedder = 'wordllama': {error}; {INSTALL}") from error
    finally:  # importing it turns all logging on
        root.setLevel(level)
        root.handlers[:] = handlers
    # Its own folder as its cache: it looks for its tokenizer in a wrong one first (0.4.0), and would download it.
    folder = Path(str(wordllama.__file__)).parent
    try:
        model = wordllama.WordLlama.load(cache_dir=folder, disable_download=True)
    except (FileNotFoundError, AttributeError) as error:
        raise UsageError(f"dedupe.embedder = 'wordllama': its files are not whole ({error}); {INSTALL}") from error
    return lambda texts: model.embed(list(texts), norm=True)
