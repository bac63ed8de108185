"""`coevolve review`: sheets for people, what is read back, and agreement."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from coevolve.commands import start_run
from coevolve.review import kappa
from coevolve.workspace import Workspace
from store.rows import Candidate, Rating, Row, Verdict
from tests.cli import Ran, coevolve
from tests.store_rows import exploration
from tests.test_reward_model import shown, vote


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    """A run with six candidates that execution accepted: four adopted, two outvoted; one that it rejected."""
    assert coevolve("init", tmp_path / "work").code == 0
    place = Workspace.find(str(tmp_path / "work"))
    run = start_run(place, ("policy=litellm:none",), 0)
    rows: list[Row] = [exploration(None, run=run.id)]
    for at in range(7):
        name, adopt = f"c{at}", at < 4
        rows.append(
            Candidate(
                id=name,
                exploration_id=rows[0].id,  # type: ignore[union-attr]
                run=run.id,
                t=0,
                world="shop",
                user_turns=[f"=cmd|{at}" if at == 0 else f"question {at}"],
                tools=[],
                reference=f"SELECT {at}",
                index=at,
            )
        )
        reason = "valid" if adopt else "outvoted" if at < 6 else "empty_result"
        fields: Any = {"t": 0, "detail": "", "task_id": None, "repairs": 0, "seconds": 0.0, "run": run.id}
        rows.append(Verdict(id=f"v{at}", candidate_id=name, adopt=adopt, reason=reason, **fields))
        if at < 6:
            about = shown(f"=cmd|{at}" if at == 0 else f"question {at}", f"SELECT {at}")
            rows += [
                vote(name, 0, adopt, run=run.id, shown=about, cost=0.01),
                vote(name, 1, adopt if at else False, run=run.id, shown=about, cost=0.02),
                vote(name, 2, adopt, run=run.id, shown=about),
            ]
    place.store.append(rows)
    return place


def review(place: Workspace, *arguments: str | Path) -> Ran:
    return coevolve("review", *arguments, "--workspace", place.root)


def written(place: Workspace, count: int, path: Path) -> list[dict[str, str]]:
    done = review(place, "--sample", str(count), "--out", path)
    assert done.code == 0, done.err
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def fill(path: Path, lines: list[dict[str, str]]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)
    return path


def test_a_sheet_shows_the_candidates_and_not_the_votes(place: Workspace, tmp_path: Path) -> None:
    lines = written(place, 10, tmp_path / "s.csv")
    assert sorted(line["candidate"] for line in lines) == [f"c{at}" for at in range(6)]
    assert list(lines[0]) == [
        *["candidate", "world", "question", "reference"],
        *["validity", "difficulty_gain", "diversity", "realism", "adopt", "comment"],
    ]
    assert {value for line in lines for key, value in line.items() if key in ("adopt", "validity")} == {""}
    (hostile,) = [line for line in lines if line["candidate"] == "c0"]
    assert hostile["question"] == "'=cmd|0", "no spreadsheet runs it"


def test_a_sample_is_the_same_each_time_and_no_file_is_overwritten(place: Workspace, tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    first = [line["candidate"] for line in written(place, 3, path)]
    assert len(first) == 3
    assert [line["candidate"] for line in written(place, 3, tmp_path / "t.csv")] == first
    done = review(place, "--sample", "3", "--out", path)
    assert (done.code, f"--out: {path} exists; name another file" in done.err) == (2, True)


def test_what_people_say_is_kept_and_compared(place: Workspace, tmp_path: Path) -> None:
    lines = written(place, 10, tmp_path / "s.csv")
    for line in lines:
        line["adopt"] = "yes" if line["candidate"] in ("c0", "c1", "c2") else "No"
    lines[0] |= {"validity": "4", "comment": "fine"}
    lines[-1]["adopt"] = ""
    done = review(place, "--read", fill(tmp_path / "s.csv", lines), "--rater", "anna", "--json")
    assert done.code == 0, done.err
    data = json.loads(done.out)
    assert data["read"] == 5
    ratings = place.store.rows(Rating)
    assert {(row.rater, row.revision) for row in ratings} == {("anna", 0)}
    assert [row.scores for row in ratings if row.candidate_id == lines[0]["candidate"]] == [{"validity": 4}]
    (pair,) = [p for p in data["agreement"] if (p["first"], p["second"]) == ("committee", "anna (person)")]
    assert pair["n"] == 5
    said = {row.candidate_id: row.adopt for row in ratings}
    expected = kappa({f"c{at}": at < 4 for at in range(6)}, said)
    assert {key: pair[key] for key in expected} == expected
    assert {judge["judge"]: (judge["votes"], judge["for"]) for judge in data["judges"]} == {
        "judge 1 (m)": (6, 4),
        "judge 2 (m)": (6, 3),
        "judge 3 (m)": (6, 4),
    }
    assert [row["candidate_id"] for row in data["split"]] == ["c0"]
    assert (data["judged"], data["cost_per_verdict"]) == (6, pytest.approx(0.03))


def test_a_later_rating_counts(place: Workspace, tmp_path: Path) -> None:
    sheet = fill(tmp_path / "s.csv", [{"candidate": "c0", "adopt": "yes"}])
    assert review(place, "--read", sheet, "--rater", "anna").code == 0
    sheet = fill(tmp_path / "s.csv", [{"candidate": "c0", "adopt": "no"}])
    data = json.loads(review(place, "--read", sheet, "--rater", "anna", "--json").out)
    assert [row.revision for row in place.store.rows(Rating)] == [0, 1]
    (pair,) = [p for p in data["agreement"] if (p["first"], p["second"]) == ("committee", "anna (person)")]
    assert pair["agreement"] == 0.0


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([{"candidate": "c0", "adopt": "maybe"}], "line 2: adopt = 'maybe'; write yes or no"),
        ([{"candidate": "zz", "adopt": "yes"}], "line 2: candidate 'zz' is no candidate of run r001"),
        ([{"candidate": "c0", "adopt": "no"}] * 2, "line 3: candidate 'c0' stands in the sheet twice"),
        ([{"candidate": "c0", "adopt": "no", "realism": "6"}], "line 2: realism = '6'; write a whole number from 1"),
        ([{"candidate": "c0", "adopt": ""}], "no line is filled in"),
        ([{"candidate": "c0"}], "has no column 'adopt'"),
    ],
)
def test_a_bad_sheet_is_refused_whole(place: Workspace, tmp_path: Path, lines: Any, words: str) -> None:
    good = {"candidate": "c1", "adopt": "yes"} if "adopt" in lines[0] and lines[0]["adopt"] else {}
    sheet = fill(tmp_path / "s.csv", [*lines, *([{**dict.fromkeys(lines[0], ""), **good}] if good else [])])
    done = review(place, "--read", sheet, "--rater", "anna")
    assert done.code == 2
    assert words in done.err
    assert place.store.rows(Rating) == []


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_a_sheet_that_a_spreadsheet_saved_is_read(place: Workspace, tmp_path: Path, mark: str) -> None:
    lines = [["candidate", "question", "adopt"], ["c0", "this, that; or", "Yes"], ["c1", "x", "NO"]]
    with (tmp_path / "s.csv").open("w", newline="", encoding="utf-8-sig") as file:
        csv.writer(file, delimiter=mark, lineterminator="\r\n").writerows(lines)
    done = review(place, "--read", tmp_path / "s.csv", "--rater", "anna")
    assert done.code == 0, done.err
    assert {row.candidate_id: row.adopt for row in place.store.rows(Rating)} == {"c0": True, "c1": False}


def test_a_quote_that_is_not_closed_swallows_no_ratings(place: Workspace, tmp_path: Path) -> None:
    sheet = tmp_path / "s.csv"
    sheet.write_text('candidate,question,adopt\nc0,q,yes\nc1,"open,yes\nc2,q,no\n')
    done = review(place, "--read", sheet, "--rater", "anna")
    assert (done.code, "unexpected end of data" in done.err) == (2, True), done.err
    assert place.store.rows(Rating) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--read", "nowhere.csv", "--rater", "a"], "--read: cannot read nowhere.csv"),
        (["--read", "nowhere.csv"], "--rater: say who filled the sheet in"),
        (["--sample", "2", "--read", "x"], "--sample, --read: a sheet is written or read"),
        (["--out", "x.csv"], "--out: it goes with --sample N"),
        (["--sample", "0"], "0 is not in the range"),
    ],
)
def test_bad_arguments_are_named(place: Workspace, arguments: list[str], words: str) -> None:
    done = review(place, *arguments)
    assert (done.code, words in done.err) == (2, True), done.err


def test_without_judges_it_says_what_to_do(tmp_path: Path) -> None:
    assert coevolve("init", tmp_path / "work").code == 0
    place = Workspace.find(str(tmp_path / "work"))
    start_run(place, ("policy=litellm:none",), 0)
    done = review(place)
    assert (done.code, "no candidate was judged; name models in [judge]" in done.out) == (0, True)
    done = review(place, "--sample", "3")
    assert (done.code, "has no candidate that execution accepted" in done.err) == (2, True)


def test_kappa_on_a_known_table() -> None:
    """Yes/yes 20, yes/no 5, no/yes 10, no/no 15: agreement 0.7, chance 0.5, kappa 0.4."""
    cells = [(True, True)] * 20 + [(True, False)] * 5 + [(False, True)] * 10 + [(False, False)] * 15
    first, second = ({str(at): cell[which] for at, cell in enumerate(cells)} for which in (0, 1))
    assert kappa(first, second) == {"n": 50, "agreement": 0.7, "kappa": pytest.approx(0.4)}
    assert kappa({"a": True}, {"a": True}) == {"n": 1, "agreement": 1.0, "kappa": None}
    assert kappa({"a": True}, {"b": True}) == {"n": 0, "agreement": None, "kappa": None}
