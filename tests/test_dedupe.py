"""The three stages of de-duplication, each naming the twin."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coevolve.config import Settings
from coevolve.embedding import embedder, resolved
from store.dedupe import DedupeSettings, Index, form_key, question_key, reference_key
from store.errors import UsageError
from store.rows import Task
from tests.cli import coevolve
from tests.store_rows import task

OLD = task(1, user_turns=["Who is older than 30?"], reference="SELECT name FROM a WHERE age > 30", expected=["x"])


def asked(question: str, reference: str = "SELECT 1 FROM b", expected: Any = None, world: str = "shop") -> Task:
    return task(user_turns=[question], reference=reference, expected=expected or [question], world=world)


def index(*tasks: Task, held_out: bool = False, embed: Any = None, **settings: Any) -> Index:
    found = Index(DedupeSettings(**settings), embed)
    found.add(tasks, held_out=held_out)
    return found


def by_letters(texts: Sequence[str]) -> Any:
    """A stand-in for the model: counts of letters. What it thinks alike is alike in letters."""
    counts = numpy.array([[text.count(chr(97 + i)) + 0.01 for i in range(26)] for text in texts], dtype="float32")
    return counts / numpy.linalg.norm(counts, axis=1, keepdims=True)


@pytest.mark.parametrize(
    "twin",
    [
        asked("who is OLDER than  30"),
        asked("Anyone over thirty?", "select  name\nFROM a where age > 30;"),
    ],
)
def test_the_same_question_or_reference_is_an_exact_twin(twin: Task) -> None:
    found = index(OLD).twin(twin)
    assert found is not None
    assert (found.stage, found.task, found.held_out) == ("exact", OLD.id, False)


def test_another_world_is_no_twin() -> None:
    assert index(OLD).twin(asked("Who is older than 30?", str(OLD.reference), world="school")) is None


def test_constants_alone_are_told_apart_by_the_exact_stage_and_not_by_the_structural_one() -> None:
    other = asked("Who is older than 40?", "SELECT name FROM a WHERE age > 40")
    assert reference_key(OLD) != reference_key(other)
    assert form_key(OLD) == form_key(other)


def test_so_many_of_one_form_and_no_more() -> None:
    alike = [asked(f"older than {n}?", f"SELECT name FROM a WHERE age > {n}") for n in range(4)]
    assert index(*alike[:2], structural=3).twin(alike[3]) is None
    found = index(*alike[:3], structural=3).twin(alike[3])
    assert found is not None
    assert (found.stage, found.task) == ("structural", alike[0].id)
    assert index(*alike[:3], structural=0).twin(alike[3]) is None


def test_the_form_of_a_held_out_item_is_taken() -> None:
    found = index(OLD, held_out=True).twin(asked("older than 40?", "SELECT name FROM a WHERE age > 40"))
    assert found is not None
    assert (found.stage, found.held_out, str(found)) == ("structural", True, f"{OLD.id} (structural, {found.detail})")


def test_alike_to_the_model_and_of_one_outcome_is_a_semantic_twin() -> None:
    same = asked("Who is more than 30, older?", "SELECT name FROM a WHERE NOT age <= 30", ["x"])
    found = index(OLD, embed=by_letters).twin(same)
    assert found is not None
    assert (found.stage, found.task) == ("semantic", OLD.id)


def test_alike_to_the_model_but_of_another_outcome_is_another_task() -> None:
    other = asked("Who is older than 80?", "SELECT b.name FROM a AS b WHERE age > 80", ["y"])
    assert index(OLD, embed=by_letters).twin(other) is None


def test_without_a_model_there_is_no_semantic_stage() -> None:
    assert index(OLD).twin(asked("Who is more than 30, older?", "SELECT 5 FROM c", ["x"])) is None


@given(st.text(max_size=60), st.recursive(st.none() | st.integers() | st.text(max_size=20), lambda s: st.lists(s)))
def test_no_text_breaks_the_keys(question: str, reference: Any) -> None:
    hostile = task(user_turns=[question], reference=reference)
    assert question_key(hostile) == question_key(hostile)
    found = index(hostile).twin(hostile)
    assert found is not None
    assert (found.stage, found.task) == ("exact", hostile.id)


def test_a_model_that_is_not_installed_is_named_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "wordllama", None)
    monkeypatch.setattr("coevolve.embedding._wordllama", embedder.__globals__["_wordllama"].__wrapped__)
    with pytest.raises(UsageError, match=r"dedupe.embedder = 'wordllama'.*pip install '.\[embed\]'"):
        embedder(Settings().overridden(["dedupe.embedder=wordllama"]))


def test_auto_takes_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coevolve.embedding.find_spec", lambda name: None)
    assert resolved(Settings()).dedupe.embedder == "none"
    assert embedder(resolved(Settings())) is None


def test_a_run_with_a_missing_model_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "wordllama", None)
    monkeypatch.setattr("coevolve.embedding._wordllama", embedder.__globals__["_wordllama"].__wrapped__)
    assert coevolve("init", tmp_path / "w").code == 0
    done = coevolve(
        "seed", "--workspace", tmp_path / "w", "--set", "policy=litellm:x", "--set", "dedupe.embedder=wordllama"
    )
    assert done.code == 2
    assert "pip install" in done.err


def test_the_packaged_model_works_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wordllama")

    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError("no network")

    monkeypatch.setattr(socket, "create_connection", refuse)
    embed = embedder(Settings().overridden(["dedupe.embedder=wordllama"]))
    assert embed is not None
    one, same, other = embed(["In which city does Iris Moss live?", "Where does Iris Moss live?", "How many books?"])
    assert one @ same > 0.8 > 0.4 > one @ other
