"""Spider and BIRD folders as a text2sql environment.

Both ship `database/<db>/<db>.sqlite` and JSON files of items {"db_id", "question", "query" or "SQL"}. Items of files
whose name starts with `train` become seeds, those of `dev*` the suite `gold`, of `test*` the suite `test`. BIRD's
`evidence` is put before the question. `tables.json` repeats what the databases say themselves and is only checked.

More `.sqlite` files beside `<db>.sqlite` are further populations of it, as in Spider's test suites (Zhong et al. 2020).
Without them a database has one population: an answer that is right by luck on its rows passes, the rule "the result
differs between two populations" cannot hold, and so no explored task is admitted. Items are taken if they run; the few
that do not are left out with a warning. The files are opened read-only and never written.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from envs.text2sql.engine import Limits, tables
from envs.text2sql.env import Question, Text2Sql
from envs.text2sql.world import SqlWorld
from store.errors import UsageError
from store.rows import Split, without_lone_surrogates

LIMITS = Limits(vm_steps=500_000_000, deadline_s=30.0, rows=10_000, result_bytes=10_000_000, value_bytes=1_000_000)
"""BIRD's databases reach gigabytes, and its queries seconds."""
_SPLITS: tuple[tuple[str, Split], ...] = (("train", "train"), ("dev", "gold"), ("test", "test"))
_FOLDERS = ("database", "train_databases", "dev_databases", "test_databases", "databases")

Items = dict[Split, list[Question]]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Files:
    databases: dict[str, Path]
    items: dict[Split, list[Path]]

    @property
    def paths(self) -> list[Path]:
        return [path for paths in self.items.values() for path in paths]


def load(folder: str | Path) -> Text2Sql:
    """The environment over a Spider or BIRD folder. UsageError names the file and the item that is wrong."""
    files = _find(Path(folder))
    _check_tables_json(Path(folder) / "tables.json", files.databases)
    questions: Items = {split: _read_all(paths, files.databases) for split, paths in files.items.items()}
    if not any(questions.values()):
        raise UsageError(f"folder {str(folder)!r}: there is no item in {', '.join(map(str, files.paths))}")
    named = {item.world for items in questions.values() for item in items}
    worlds = [_world(name, path, questions) for name, path in sorted(files.databases.items()) if name in named]
    loaders: dict[Split, Callable[[], list[Question]]] = {
        split: partial(list, items) for split, items in questions.items()
    }
    return Text2Sql(worlds, loaders, skip=True)


def _find(folder: Path) -> _Files:
    if not folder.is_dir():
        raise UsageError(f"folder {str(folder)!r}: there is no such folder; unpack Spider or BIRD and name its folder")
    found = [path for name in _FOLDERS for path in sorted((folder / name).glob("*/*.sqlite"))]
    databases = {path.stem: path for path in found if path.stem == path.parent.name}
    if not databases:
        raise UsageError(f"folder {str(folder)!r}: no database/<db>/<db>.sqlite in it; is it a Spider or BIRD folder?")
    items: dict[Split, list[Path]] = {}
    for prefix, split in _SPLITS:
        paths = [path for path in sorted(folder.glob(f"{prefix}*.json")) if not path.stem.endswith("tables")]
        if paths:
            items[split] = paths
    if not items:
        raise UsageError(f"folder {str(folder)!r}: no train*.json, dev*.json or test*.json in it")
    return _Files(databases=databases, items=items)


def _world(name: str, path: Path, questions: Items) -> SqlWorld:
    """A database that any training item uses is a training world; the others are only tested on."""
    splits: list[Split] = [split for split, items in questions.items() if any(item.world == name for item in items)]
    try:
        shape = tuple(tables(path))
    except sqlite3.Error as error:
        readable = isinstance(error, sqlite3.OperationalError)  # a file, but for example a view of a table that is gone
        what = "its schema cannot be read" if readable else "it is no SQLite database"
        raise UsageError(f"{path}: {what} ({error})") from error
    variants = sorted(other for other in path.parent.glob("*.sqlite") if other != path)
    return SqlWorld(id=name, split=splits[0], tables=shape, populations=(path, *variants), limits=LIMITS)


def _check_tables_json(path: Path, databases: dict[str, Path]) -> None:
    if not path.exists():
        return
    for number, entry in enumerate(_items(path)):
        name = entry.get("db_id")
        if not isinstance(name, str) or name not in databases:
            raise _no_database(f"{path} item {number}", name)


def _no_database(where: str, name: object) -> UsageError:
    shown = without_lone_surrogates(str(name))
    return UsageError(f"{where}: db_id {shown!r}: there is no database/{shown}/{shown}.sqlite")


def _read_all(paths: Iterable[Path], databases: dict[str, Path]) -> list[Question]:
    return [question for path in paths for question in _read(path, databases)]


def _read(path: Path, databases: dict[str, Path]) -> list[Question]:
    return [_question(f"{path} item {number}", item, databases) for number, item in enumerate(_items(path))]


def _items(path: Path) -> list[dict[str, Any]]:
    try:
        items = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UsageError(f"{path}: it cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: no JSON ({error})") from error
    if not isinstance(items, list):
        raise UsageError(f"{path}: a list of items is expected")
    for number, item in enumerate(items):
        if not isinstance(item, dict):
            raise UsageError(f"{path} item {number}: an object is expected")
    return items


def _question(where: str, item: dict[str, Any], databases: dict[str, Path]) -> Question:
    text = {"db_id": item.get("db_id"), "question": item.get("question"), "query": item.get("query", item.get("SQL"))}
    text["evidence"] = str(item.get("evidence") or "").strip()
    for field, value in text.items():
        words = "query (or SQL)" if field == "query" else field
        if not isinstance(value, str) or not (value.strip() or field == "evidence"):
            raise UsageError(f"{where}: field {words} is missing or no text")
        if value != without_lone_surrogates(value):
            raise UsageError(f"{where}: field {words} is no valid Unicode (it holds half a surrogate pair); correct it")
    if text["db_id"] not in databases:
        raise _no_database(where, text["db_id"])
    question = f"{text['evidence']}\n{text['question']}" if text["evidence"] else str(text["question"])
    return Question(world=str(text["db_id"]), question=question, sql=str(text["query"]), where=where)
