"""The instances of one rollout, and calls of their documented functions by name and JSON arguments."""

from __future__ import annotations

import copy
import json
from functools import cache
from typing import Any

from bfcl_eval.constants.executable_backend_config import STATELESS_CLASSES

from envs.bfcl.worker.data import backend, documents, entry, signature

LIMITS = {"precision": 1000, "exponent": 1000, "decimal_places": 1000}
"""Parameters whose size is work: a precision of 100000 takes 10 seconds."""
DIGITS = 10**18
"""Larger whole numbers are refused."""
DEPTH = 20
"""Nesting of an argument."""
ERROR = "Error during execution: "
"""How the package begins the observation of a call that raised."""


class Refused(ValueError):
    """A call that is not carried out; its words follow `ERROR`."""


class Backends:
    """The instances of one rollout, which shares nothing with any other."""

    def __init__(self, world: str) -> None:
        found = entry(world)
        self.owners: list[str] = found["involved_classes"]
        self.instances: dict[str, Any] = {}
        for owner in self.owners:
            made = backend(owner)()
            if owner not in STATELESS_CLASSES:
                long = "long_context" in world
                made._load_scenario(json.loads(_config(world, owner)), long_context=long)
                made = copy.deepcopy(made) if long else made  # they are filled from lists of the module
            self.instances[owner] = made
        self.table = {name: owner for owner in self.owners for name in documents(owner)}

    def call(self, name: Any, args: Any, *, coerce: bool) -> tuple[str, bool]:
        """(what is observed, whether it is an error)."""
        try:
            if not isinstance(name, str) or name not in self.table:
                raise Refused(f"name {str(name)[:64]!r} is not defined")
            owner = self.table[name]
            result = getattr(self.instances[owner], name)(**_arguments(owner, name, args, coerce))
            return render(result), isinstance(result, dict) and "error" in result
        except MemoryError:
            raise
        except Exception as error:
            return f"{ERROR}{error}", True


@cache
def _config(world: str, owner: str) -> str:
    """As JSON, from which a copy is made faster than from a copy."""
    return json.dumps(entry(world)["initial_config"].get(owner, {}))


def _arguments(owner: str, name: str, args: Any, coerce: bool) -> dict[str, Any]:
    """A copy of the arguments, and of defaults that the function would otherwise change for everybody."""
    if not isinstance(args, dict):
        raise Refused("the arguments must be a JSON object")
    _check(args, 0)
    for key, most in LIMITS.items():
        if isinstance(args.get(key), int | float) and abs(args[key]) > most:
            raise Refused(f"{key} must lie between -{most} and {most}")
    parameters = signature(owner, name).parameters
    defaults = {key: each.default for key, each in parameters.items() if isinstance(each.default, list | dict)}
    given = copy.deepcopy(defaults | args)
    if coerce:
        documented = documents(owner)[name]["parameters"].get("properties", {})
        given = {key: _coerced(value, documented.get(key, {})) for key, value in given.items()}
    return given


def _check(value: Any, depth: int) -> None:
    if depth > DEPTH:
        raise Refused(f"an argument is nested more than {DEPTH} deep")
    if isinstance(value, int) and abs(value) >= DIGITS:
        raise Refused("a number has more than 18 digits")
    if isinstance(value, list | dict):
        for inner in value.values() if isinstance(value, dict) else value:
            _check(inner, depth + 1)


def _coerced(value: Any, document: Any) -> Any:
    if type(value) is int and document.get("type") == "float":
        return float(value)
    if isinstance(value, list) and "items" in document:
        return [_coerced(item, document["items"]) for item in value]
    return value


def render(result: Any) -> str:
    """As the package's executor does."""
    if type(result) is dict:
        try:
            return json.dumps(result)
        except Exception:
            return str(result)
    return str(result)
