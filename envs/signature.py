"""A JSON-schema tool as a typed, documented Python function.

Libraries that take functions for tools (transformers, TRL, smolagents, ...) read a signature and a Google-style
docstring. What Python's types cannot say is lost there: the properties of an object, ranges, patterns.
"""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any, Literal, Union

from store.errors import UsageError
from store.rows import Json

_TYPES: dict[Any, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "null": type(None),
    "object": dict,
}
_LITERALS = (str, int, float, bool, type(None))
_MARKS = re.compile(r"\b(Args|Returns|Raises|choices):", re.IGNORECASE)
"""Words that readers of docstrings take for the beginning of a section."""


def describe(function: Callable[..., Any], tool: Json) -> None:
    """Give `function(self, **arguments)` the tool's name, signature and docstring. UsageError for names that Python
    does not take."""
    name, parameters = tool["function"]["name"], tool["function"]["parameters"]
    properties = parameters.get("properties", {})
    for word in (name, *properties):
        if not word.isidentifier() or keyword.iskeyword(word):
            raise UsageError(f"tool {name!r}: {word!r} cannot be a name in Python, so it cannot be a Python function")
    function.__name__ = function.__qualname__ = name
    function.__doc__ = _docstring(tool["function"], properties)
    function.__annotations__ = {key: python_type(schema) for key, schema in properties.items()}
    required = parameters.get("required", [])
    arguments = [_parameter(key, schema, key in required) for key, schema in properties.items()]
    own = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
    function.__signature__ = Signature([own, *arguments])  # type: ignore[attr-defined]


def python_type(schema: Json) -> Any:
    """The type whose JSON schema is this one, or the nearest that there is."""
    choices = schema.get("enum")
    if choices and all(type(choice) in _LITERALS for choice in choices):
        return Literal[tuple(choices)]
    kind = schema.get("type")
    if isinstance(kind, list):
        return Union[tuple(python_type({**schema, "type": each}) for each in kind)]  # noqa: UP007
    if kind == "array":
        return list[python_type(schema.get("items") or {})]  # type: ignore[misc]
    return _TYPES.get(kind, Any)


def _parameter(name: str, schema: Json, required: bool) -> Parameter:
    default = Parameter.empty if required else schema.get("default")
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=python_type(schema), default=default)


def _docstring(function: Json, properties: Json) -> str:
    words = _line(function.get("description") or function["name"])
    if not properties:
        return words
    lines = [f"    {name}: {_about(name, schema)}" for name, schema in properties.items()]
    return "\n".join([words, "", "Args:", *lines])


def _about(name: str, schema: Json) -> str:
    words = _line(schema.get("description") or name)
    return f"{words} Defaults to {json.dumps(schema['default'])}." if "default" in schema else words


def _line(text: str) -> str:
    return _MARKS.sub(r"\1 -", " ".join(text.split()))
