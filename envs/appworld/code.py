"""The agent's code, before it reaches the engine: which block it is, and whether it keeps to what a task needs.

The first of several layers (docs/appworld.md), and no sandbox: it turns away, as an observation that the agent reads,
what no honest solution has any use for. Names are an allow-list where that is possible (modules) and a deny-list where
it is not (attributes). Text that Python cannot parse never reaches the engine, whose shell would take `!ls` for a
command.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

CHARS = 20_000
"""Characters of one block."""
MODULES = frozenset((
    "bisect", "calendar", "collections", "collections.abc", "copy", "dataclasses", "datetime", "decimal", "fractions",
    "functools", "heapq", "itertools", "json", "math", "random", "re", "statistics", "string",
    "textwrap", "time", "typing",
))  # fmt: skip
BUILTINS = frozenset((
    "__import__", "breakpoint", "builtins", "classmethod", "compile", "delattr", "dir", "eval", "exec", "exit",
    "getattr", "globals", "help", "input", "locals", "memoryview", "open", "quit", "setattr", "staticmethod",
    "super", "vars", "get_ipython", "In", "Out", "ApiCollection", "Requester", "requester", "__builtins__",
    "__loader__", "__spec__",
))  # fmt: skip
"""Names that lead out of what a task needs. Two more, `_` and `__`, are plain throw-away names."""
MODULE_ATTRIBUTES = frozenset((
    "abc", "ast", "asyncio", "builtins", "codecs", "ctypes", "enum", "gc", "importlib", "inspect", "io", "itertools",
    "keyword", "locale", "numbers", "operator", "os", "pathlib", "pickle", "posix", "reprlib", "signal", "shutil",
    "socket", "subprocess", "sys", "sysconfig", "tempfile", "threading", "tokenize", "types", "warnings", "weakref",
))  # fmt: skip
"""Modules that allowed modules hold: `random.os` is os."""
REACHING = frozenset((
    "Formatter", "ForwardRef", "FunctionType", "MethodType", "attrgetter", "clock_settime", "clock_settime_ns",
    "contextlib", "copyreg", "dispatch_table", "get_field", "get_type_hints", "methodcaller", "singledispatch",
    "singledispatchmethod", "update_wrapper", "vformat", "wraps", "zoneinfo",
))  # fmt: skip
"""What gives an attribute by a name in a text, or carries out a text, or reaches past this process."""
FRAMES = re.compile(r"(tb|f|gi|cr|ag|co)_[a-z]+$|mro$|format_map$")
FENCE = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL | re.IGNORECASE)


def block(text: str) -> str | None:
    """The first fenced block, open-ended ones included; None where there is none."""
    found = FENCE.search(text)
    return found[1].strip() if found and found[1].strip() else None


def refusal(code: str) -> str | None:
    """Why the code is not carried out, in words for who wrote it; None if it may be."""
    if len(code) > CHARS:
        return f"the code has {len(code)} characters, at most {CHARS} are carried out"
    try:
        tree = ast.parse(code)
        found = next(_outside(tree), None)
    except SyntaxError as error:
        return f"SyntaxError: {error.msg} (line {error.lineno})"
    except (ValueError, RecursionError, MemoryError) as error:
        return f"{type(error).__name__}: the code cannot be parsed"
    return f"{found} is not available here: use the apis, and plain Python" if found else None


def _outside(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (f"module {each.name}" for each in names if each.name not in MODULES)
            case ast.ImportFrom(module=module, names=names, level=level):
                yield from () if module in MODULES and not level else (f"module {module}",)
                yield from (each.name for each in names if _hidden(each.name) or each.name == "*")
            case ast.Name(id=name) if name in BUILTINS or (name.startswith("__") and name != "__"):
                yield name
            case ast.Attribute(attr=name) if _hidden(name):
                yield f".{name}"
            case ast.Attribute(value=ast.Name(id="apis"), attr="admin"):
                yield "apis.admin"
            case ast.MatchClass(patterns=[_, *_]):
                yield "a class pattern with places"  # which attributes it reads, the class says
            case ast.MatchClass(kwd_attrs=names):
                yield from (f".{name}" for name in names if _hidden(name))
            case ast.Constant(value=str() | bytes() as value) if "__" in str(value) and _dunder(str(value)):
                yield "a name with double underscores in a text"
            case _:
                pass


def _hidden(name: str) -> bool:
    """An attribute that leads out: private, a module, one that reaches others, a frame."""
    return name.startswith("_") or name in MODULE_ATTRIBUTES | REACHING or FRAMES.match(name) is not None


def _dunder(text: str) -> bool:
    return re.search(r"__[a-z]+__", text) is not None
