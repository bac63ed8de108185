"""What a server lends to graphs by name: a configuration that is kept with a checkpoint can hold a name, not an object.

coevolve/studio/attached.py lends; graphs without a name, or with the object itself, need nothing of this.
"""

from __future__ import annotations

from typing import TypeVar

from store.errors import UsageError

KEPT = 64
"""Things lent at once; the oldest go first."""

T = TypeVar("T")
_LENT: dict[tuple[str, type], object] = {}


def lend(name: str, thing: object) -> None:
    _LENT[name, type(thing)] = thing
    while len(_LENT) > KEPT:
        del _LENT[next(iter(_LENT))]


def borrowed(given: object, kind: type[T]) -> T | None:
    """`given` if it is one, what was lent under that name if it is a name, else None. UsageError if nothing was."""
    if isinstance(given, kind):
        return given
    if not isinstance(given, str):
        return None
    found = _LENT.get((given, kind))
    if not isinstance(found, kind):
        raise UsageError(
            f"{kind.__name__.lower()}: {given!r} is not lent here; start the server with `coevolve studio`"
        )
    return found
