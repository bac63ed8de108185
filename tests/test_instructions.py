"""Alpaca and ShareGPT records as samples and back; what is in neither form is told by place and field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from store import instructions
from store.datafile import Fault
from store.errors import UsageError
from store.instructions import Format, Pair, format_of, messages, survey, with_responses

TALK = [
    {"from": "system", "value": "Be kind."},
    {"from": "human", "value": "hi"},
    {"from": "gpt", "value": "hello", "weight": 1},
    {"from": "human", "value": "bye"},
    {"from": "gpt", "value": "ciao"},
]


def write(path: Path, *records: Any) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def faults(path: Path, form: Format) -> list[str]:
    return [str(each) for each in instructions.read(path, form) if isinstance(each, Fault)]


def test_alpaca_with_and_without_input(tmp_path: Path) -> None:
    plain = {"instruction": "a", "output": "b"}
    path = write(tmp_path / "a.jsonl", {**plain, "input": "c", "id": 7}, plain, {**plain, "input": None, "id": "x"})
    found = list(instructions.samples(path, "alpaca"))
    assert [sample.pairs for sample in found] == [
        [Pair(instruction="a", input="c", response="b")],
        [Pair(instruction="a", response="b")],
        [Pair(instruction="a", response="b")],
    ]
    assert [(sample.index, sample.name) for sample in found] == [(0, "7"), (1, None), (2, "x")]


def test_alpaca_gets_its_response_and_nothing_else(tmp_path: Path) -> None:
    record = {"id": 1, "instruction": "a", "output": "b", "input": "c", "more": {"z": [1, None]}}
    (sample,) = instructions.samples(write(tmp_path / "a.jsonl", record), "alpaca")
    assert list(with_responses(sample, "alpaca", ["new"]).items()) == list({**record, "output": "new"}.items())
    assert sample.record == record


def test_sharegpt_turns_and_back(tmp_path: Path) -> None:
    (sample,) = instructions.samples(write(tmp_path / "a.jsonl", {"conversations": TALK, "lang": "en"}), "sharegpt")
    assert sample.system == "Be kind."
    assert sample.pairs == [Pair(instruction="hi", response="hello"), Pair(instruction="bye", response="ciao")]
    again = with_responses(sample, "sharegpt", ["HELLO", "CIAO"])
    assert [one["value"] for one in again["conversations"]] == ["Be kind.", "hi", "HELLO", "bye", "CIAO"]
    assert again["conversations"][2] == {"from": "gpt", "value": "HELLO", "weight": 1}
    assert (again["lang"], TALK[2]["value"]) == ("en", "hello")


def test_user_and_assistant_are_read_too(tmp_path: Path) -> None:
    talk = [{"from": "user", "value": "a"}, {"from": "assistant", "value": "b"}]
    (sample,) = instructions.samples(write(tmp_path / "a.jsonl", {"conversations": talk}), "sharegpt")
    assert with_responses(sample, "sharegpt", ["c"])["conversations"][1] == {"from": "assistant", "value": "c"}


@pytest.mark.parametrize(
    ("record", "fault"),
    [
        ([1], "record: [1] is no object"),
        ({}, "instruction: missing; the record has nothing"),
        ({"prompt": "a"}, "instruction: missing; the record has prompt"),
        ({"instruction": "a"}, "output: missing; the record has instruction"),
        ({"instruction": 3, "output": "b"}, "instruction: 3 is no text"),
        ({"instruction": "a", "output": None}, "output: None is no text"),
        ({"instruction": "a", "output": "b", "input": ["c"]}, "input: ['c'] is no text"),
        (
            {"instruction": "a", "output": "\ud800"},
            "output: half a character (a lone surrogate), which UTF-8 can't hold",
        ),
        ({"instruction": "a", "output": "b", "id": [1]}, "id: [1] is no text and no whole number"),
        ({"instruction": "a", "output": "b", "id": True}, "id: True is no text and no whole number"),
    ],
)
def test_what_is_not_alpaca_is_told(tmp_path: Path, record: Any, fault: str) -> None:
    assert faults(write(tmp_path / "a.jsonl", record), "alpaca") == [f"line 1: {fault}"]


def said(*roles: str) -> Any:
    return {"conversations": [{"from": role, "value": "x"} for role in roles]}


@pytest.mark.parametrize(
    ("record", "fault"),
    [
        ({"messages": []}, "conversations: missing; the record has messages"),
        ({"conversations": "a"}, "conversations: 'a' is no list of messages"),
        ({"conversations": []}, "conversations: 0 turns; "),
        (said("system"), "conversations: 0 turns; "),
        (said("human"), "conversations: 1 turns; as many of gpt as of human, and at least one of each"),
        (said("human", "gpt", "human"), "conversations: 3 turns; "),
        (said("gpt", "human"), "conversations: turn 1 and the next are from gpt and human, not from human and gpt"),
        (said("human", "gpt", "human", "human"), "conversations: turn 3 and the next are from human and human, "),
        (
            said("human", "tool"),
            "conversations[1].from: 'tool' is no known role; human, gpt and, first of all, system are",
        ),
        (said("human", "gpt", "system", "gpt"), "conversations: turn 3 and the next are from system and gpt, "),
        ({"conversations": ["hi"]}, "conversations[0]: 'hi' is no object"),
        ({"conversations": [{"role": "user"}]}, "conversations[0].from: missing"),
        ({"conversations": [{"from": "human", "value": 1}]}, "conversations[0].value: 1 is no text"),
    ],
)
def test_what_is_not_sharegpt_is_told(tmp_path: Path, record: Any, fault: str) -> None:
    (told,) = faults(write(tmp_path / "a.jsonl", record), "sharegpt")
    assert told.startswith(f"line 1: {fault}")


def test_a_survey_tells_every_fault_and_names_that_occur_twice(tmp_path: Path) -> None:
    good = {"instruction": "a", "output": "b"}
    path = write(
        tmp_path / "a.jsonl", {**good, "id": "x"}, {"id": 1}, {**good, "id": 2}, {**good, "id": "2"}, good, good
    )
    told: list[str] = []
    found = survey(path, "alpaca", lambda fault: told.append(str(fault)))
    assert (found.samples, found.faults) == (6, 2)
    assert told == [
        "line 2: instruction: missing; the record has id",
        "line 4: id: '2' occurs before; ids must differ",
    ]


def test_a_survey_knows_the_bytes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", {"instruction": "a", "output": "b"})
    before = survey(path, "alpaca", print).sha256
    path.write_text(path.read_text() + "\n")
    assert survey(path, "alpaca", print).sha256 != before


def test_a_file_that_changed_since_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="line 1: output: missing"):
        list(instructions.samples(write(tmp_path / "a.jsonl", {"instruction": "a"}), "alpaca"))


def test_the_form_is_seen_in_the_first_record(tmp_path: Path) -> None:
    assert format_of(write(tmp_path / "a.jsonl", {"conversations": TALK})) == "sharegpt"
    assert format_of(write(tmp_path / "a.jsonl", {"instruction": "a"})) == "alpaca"
    with pytest.raises(UsageError, match="holds no record"):
        format_of(write(tmp_path / "a.jsonl"))


def test_samples_as_chat_messages(tmp_path: Path) -> None:
    (sample,) = instructions.samples(write(tmp_path / "a.jsonl", {"conversations": TALK}), "sharegpt")
    roles = ["system", "user", "assistant", "user", "assistant"]
    assert [message["role"] for message in messages(sample)] == roles
    record = {"instruction": "Add.", "input": "1 2", "output": "3"}
    (sample,) = instructions.samples(write(tmp_path / "a.jsonl", record), "alpaca")
    assert messages(sample) == [
        {"role": "user", "content": "Add.\n\n1 2"},
        {"role": "assistant", "content": "3"},
    ]
