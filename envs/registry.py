"""Environments by spec: a name, and for some a folder after a colon (`text2sql`, `text2sql:path/to/spider`)."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from inspect import signature
from typing import Any, cast

from envs.protocols import Env, Explorer
from store.errors import UsageError


def _text2sql(folder: str | None = None) -> Env:
    """`folder`: a Spider or BIRD folder instead of the built-in databases."""
    if folder is not None:
        from envs.text2sql.spider import load

        return load(folder)
    from envs.text2sql.env import builtin

    return builtin()


_ENVS: dict[str, Callable[..., Env]] = {"text2sql": _text2sql}
_EXPLORERS = {"text2sql": "envs.text2sql.procedural"}


def names() -> list[str]:
    return sorted(_ENVS)


def get(name: str, **options: Any) -> Env:
    """The environment of that spec. UsageError if there is none, or if it takes no such option."""
    name, colon, folder = name.partition(":")
    if colon:
        options["folder"] = folder
    make = _ENVS.get(name)
    if make is None:
        raise UsageError(f"env {name!r}: there is none of that name; choose from {', '.join(names())}")
    known = signature(make).parameters
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise UsageError(f"env {name!r}: there is no option {unknown[0]!r}; the options are {', '.join(known)}")
    return make(**options)


def explorer(name: str) -> Explorer:
    """The procedural explorer of an environment: it plays a chat model's part without a model."""
    if name not in _EXPLORERS:
        raise UsageError(f"env {name!r}: it has no procedural explorer; those with one: {', '.join(_EXPLORERS)}")
    return cast(Explorer, import_module(_EXPLORERS[name]).EXPLORER)
