"""What code says it does: action tokens, structure, difficulty, spelling."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from store.rows import Json

LOOPS = (ast.For, ast.While, ast.ListComp, ast.DictComp, ast.SetComp, ast.GeneratorExp)
DOCS = "api_docs."
"""Looking something up is no part of what a task is made of."""


def of_calls(calls: list[Json]) -> list[str]:
    """`app.api` of each call of a log, loops told once."""
    return _once(call["api"] for call in calls)


def of_code(code: str) -> list[str]:
    """The same, by the code's text alone; `invalid` where Python cannot read it."""
    try:
        return _once(name for name in _marks(ast.parse(code)) if "." in name)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ["invalid"]


def structure(code: str) -> str:
    """APIs, loops and conditions in the order of the text."""
    return " ".join(_once(name for name in _marks(ast.parse(code)) if not name.startswith(DOCS)))


def difficulty(code: str) -> float:
    """Different APIs, and half as much for each loop and condition."""
    marks = [name for name in _marks(ast.parse(code)) if not name.startswith(DOCS)]
    return len({name for name in marks if "." in name}) + 0.5 * sum("." not in name for name in marks)


def canonical(code: str) -> str:
    """One spelling for what Python reads alike."""
    return ast.unparse(ast.parse(code))


def _marks(tree: ast.AST) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.Attribute(attr=api, value=ast.Attribute(attr=app, value=ast.Name(id="apis"))):
                yield f"{app}.{api}"
            case ast.If() | ast.IfExp() | ast.comprehension(ifs=[_, *_]):
                yield "if"
            case _ if isinstance(node, LOOPS):
                yield "for"
            case _:
                pass
        yield from _marks(node)


def _once(names: Iterator[str]) -> list[str]:
    kept: list[str] = []
    for name in names:
        if not kept or kept[-1] != name:
            kept.append(name)
    return kept
