"""The package's data: entries with their references, functions with their documents."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
from functools import cache
from pathlib import Path
from typing import Any

import bfcl_eval
from bfcl_eval.constants.executable_backend_config import CLASS_FILE_PATH_MAPPING, MULTI_TURN_FUNC_DOC_FILE_MAPPING

Json = Any
Call = dict[str, Any]
DATA = Path(str(bfcl_eval.__file__)).parent / "data"
CATEGORIES = ("base", "miss_func", "miss_param", "long_context")
CLASSES = (
    "GorillaFileSystem",
    "MathAPI",
    "MessageAPI",
    "TwitterAPI",
    "TicketAPI",
    "TradingBot",
    "TravelAPI",
    "VehicleControlAPI",
)
"""Those of the multi-turn part; the package's others reach the network or write files."""
TYPES = {"dict": "object", "float": "number", "tuple": "array"}
"""Words of the package's documents that JSON Schema says otherwise."""


def _lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]


@cache
def entries(category: str) -> dict[str, Any]:
    """{id: entry} with the reference parsed."""
    name = f"BFCL_v4_multi_turn_{category}.json"
    answers = {entry["id"]: entry["ground_truth"] for entry in _lines(DATA / "possible_answer" / name)}
    return {entry["id"]: {**entry, "reference": answers[entry["id"]]} for entry in _lines(DATA / name)}


def entry(world: str) -> Any:
    category = world.removeprefix("multi_turn_").rpartition("_")[0]
    if category not in CATEGORIES or world not in entries(category):
        raise KeyError(f"there is no world {world!r}")
    return entries(category)[world]


@cache
def documents(owner: str) -> dict[str, Any]:
    path = DATA / "multi_turn_func_doc" / MULTI_TURN_FUNC_DOC_FILE_MAPPING[owner]
    return {document["name"]: document for document in _lines(path)}


@cache
def backend(owner: str) -> Any:
    return getattr(importlib.import_module(CLASS_FILE_PATH_MAPPING[owner]), owner)


@cache
def signature(owner: str, name: str) -> inspect.Signature:
    return inspect.signature(getattr(backend(owner)(), name))


def schema(document: Any) -> Json:
    """A parameter's document as JSON Schema."""
    kind = document.get("type")
    made: dict[str, Any] = {} if kind in (None, "any") else {"type": TYPES.get(kind, kind)}
    made |= {key: document[key] for key in ("description", "enum") if key in document}
    if document.get("default", "None") != "None":  # how the documents write that there is none
        made["default"] = document["default"]
    if "items" in document:
        made["items"] = schema(document["items"])
    if "properties" in document:
        made["properties"] = {name: schema(value) for name, value in document["properties"].items()}
        made["required"] = list(document.get("required", []))
    return made


def tool(document: Any) -> Json:
    parameters = {**schema(document["parameters"]), "type": "object"}
    function = {"name": document["name"], "description": document["description"], "parameters": parameters}
    return {"type": "function", "function": function}


def parse(text: str, owners: list[str]) -> Call:
    """`f(1, k="x")` as {"name", "args": {parameter: value}}. ValueError unless it is a call with literal arguments."""
    node = ast.parse(text.strip(), mode="eval").body
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        raise ValueError(f"not a plain call: {text!r}")
    named = {str(word.arg): ast.literal_eval(word.value) for word in node.keywords}
    given = [ast.literal_eval(value) for value in node.args]
    owner = next(owner for owner in reversed(owners) if node.func.id in documents(owner))
    parameters = signature(owner, node.func.id).parameters
    return {"name": node.func.id, "args": dict(zip(parameters, given, strict=False)) | named}


def hidden(world: str) -> dict[str, int]:
    """{function: turn from which on it is shown}, for entries with missing functions."""
    return {name: int(turn) for turn, names in entry(world).get("missed_function", {}).items() for name in names}
