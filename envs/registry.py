"""Environments by spec: a name, and what the name's loader takes first after a colon.

text2sql  text2sql:path/to/spider  bfcl  bfcl:stratified  appworld  appworld:path/to/root
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any, cast

from envs.protocols import Env, Explorer, Report
from envs.venvs import Venv
from store.errors import UsageError
from store.rows import Task


def _text2sql(folder: str | None = None) -> Env:
    """`folder`: a Spider or BIRD folder instead of the built-in databases."""
    if folder is not None:
        from envs.text2sql.spider import load

        return load(folder)
    from envs.text2sql.env import builtin

    return builtin()


def _bfcl(split: str = "index") -> Env:
    """`split`: one of bfcl/splits.toml."""
    from envs.bfcl.env import builtin

    return builtin(split)


def _bfcl_venv() -> Venv:
    from envs.bfcl.catalog import VENV

    return VENV


def _appworld(folder: str | None = None) -> Env:
    """`folder`: the root that holds its data, if not the one of the last install."""
    from envs.appworld.env import at

    return at(folder)


def _appworld_venv() -> Venv:
    from envs.appworld.place import VENV

    return VENV


_ENVS: dict[str, Callable[..., Env]] = {"appworld": _appworld, "bfcl": _bfcl, "text2sql": _text2sql}
_VENVS: dict[str, Callable[[], Venv]] = {"appworld": _appworld_venv, "bfcl": _bfcl_venv}
LICENCES = {"appworld": "AppWorld's data licence allows its data, apps and tests to be passed on only encrypted"}
"""Environments whose texts may not be passed on in plain, and why (docs/appworld.md)."""
_MORE = {
    "appworld": {
        "install": "envs.appworld.place:install",
        "checkup": "envs.appworld.checkup:checkup",
        "native": "envs.appworld.native:write",
    }
}
"""What only some environments can: {name: {ability: where its function is}}."""
_EXPLORERS = {
    "appworld": "envs.appworld.procedural",
    "bfcl": "envs.bfcl.procedural",
    "text2sql": "envs.text2sql.procedural",
}


def names() -> list[str]:
    return sorted(_ENVS)


def get(name: str, **options: Any) -> Env:
    """The environment of that spec. UsageError if there is none, or if it takes no such option."""
    name, colon, rest = name.partition(":")
    make = _make(name)
    known = signature(make).parameters
    if colon:
        options[next(iter(known))] = rest
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise UsageError(f"env {name!r}: there is no option {unknown[0]!r}; the options are {', '.join(known)}")
    return make(**options)


def takes_folder(name: str) -> bool:
    """Whether what follows the colon of its spec is a folder."""
    return name in _ENVS and next(iter(signature(_ENVS[name]).parameters)) == "folder"


def venvs() -> list[Venv]:
    """The venvs of all environments that need one."""
    return [venv() for venv in _VENVS.values()]


def venv(name: str) -> Venv | None:
    """The venv that an environment's own packages live in; None where it needs none. UsageError if there is no such
    environment."""
    _make(name)
    return _VENVS[name]() if name in _VENVS else None


def install(name: str, root: str | None = None, data: str | None = None) -> str:
    """Install what an environment needs beyond this package; what was done, in words. UsageError, InfraError."""
    _make(name)
    if own := _more(name, "install"):
        return str(own(root, data))
    for option, value in (("--root", root), ("--data", data)):
        if value is not None:
            raise UsageError(f"{option} {value}: {name} has no data of its own; leave it out")
    needed = venv(name)
    return f"{name} is installed in {needed.install()}" if needed else f"{name} needs nothing beyond this package"


def checkup(name: str) -> Iterator[tuple[str, str, bool]]:
    """(what, what was found, whether that is well) of an installed environment that can look at itself."""
    if look := _more(name, "checkup"):
        yield from look()


def native(spec: str) -> Callable[[Sequence[Task], Path, Report], dict[str, str | None]]:
    """What writes tasks to a new folder in the form of the benchmark's own tools: {task id: why it is left out, None
    if it is there}. UsageError for an environment that has no form but ours."""
    write = _more(spec.partition(":")[0], "native")
    if write is None:
        able = ", ".join(name for name, abilities in _MORE.items() if "native" in abilities)
        raise UsageError(f"--native: tasks of {spec} have no form but ours; it is for runs of {able}")
    return partial(write, get(spec))


def _more(name: str, ability: str) -> Callable[..., Any] | None:
    where = _MORE.get(name, {}).get(ability)
    if where is None:
        return None
    module, _, function = where.partition(":")
    return cast(Callable[..., Any], getattr(import_module(module), function))


def _make(name: str) -> Callable[..., Env]:
    if name not in _ENVS:
        raise UsageError(f"env {name!r}: there is none of that name; choose from {', '.join(names())}")
    return _ENVS[name]


def installed(name: str) -> bool:
    """Whether all is there that the environment needs: its packages, its data."""
    needed = venv(name)
    if needed and not needed.installed:
        return False
    try:
        get(name)
    except UsageError:
        return False
    return True


def explorer(name: str) -> Explorer:
    """The procedural explorer of an environment: it plays a chat model's part without a model."""
    if name not in _EXPLORERS:
        raise UsageError(f"env {name!r}: it has no procedural explorer; those with one: {', '.join(_EXPLORERS)}")
    return cast(Explorer, import_module(_EXPLORERS[name]).EXPLORER)
