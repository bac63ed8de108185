"""The text2sql environment as a whole: checks, tasks, replay, no-op, twins, data files."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from envs import registry
from envs.errors import InvalidTask
from envs.protocols import Draft, Env, Outcome
from envs.text2sql.engine import Limits
from envs.text2sql.env import Question, Text2Sql, builtin, read_questions
from store.errors import UsageError
from store.rows import Task, task_id
from tests.tiny_sql import draft, task, tiny_env, tiny_world

typed: Env = tiny_env()
ZERO, ONE = Outcome(kind="scored", score=0.0), Outcome(kind="scored", score=1.0)
INFRA, INVALID = Outcome(kind="infra", detail="the disk is gone"), Outcome(kind="invalid", detail="no such table")


def reasons(sql: str, question: str = "Which ones?", limits: Limits | None = None) -> list[str]:
    return [reason.split(":")[0] for reason in tiny_env(limits).check(draft(sql, question))]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT name FROM shop WHERE stars = 5",
        "SELECT count(*) FROM shop",
        "SELECT name FROM city ORDER BY name LIMIT 1",
        "SELECT city.name, count(*) FROM city JOIN shop ON shop.city_id = city.id GROUP BY city.id",
        "SELECT city.name FROM city JOIN shop ON shop.city_id = city.id GROUP BY city.name ORDER BY sum(sales) DESC",
        "SELECT name FROM shop WHERE sales > (SELECT avg(sales) FROM shop)",
        "SELECT name FROM city UNION SELECT name FROM shop ORDER BY 1",
        "WITH best AS (SELECT max(stars) AS s FROM shop) SELECT name FROM shop, best WHERE stars = s",
        "SELECT avg(sales) FROM shop",
    ],
)
def test_good_references_pass(sql: str) -> None:
    assert reasons(sql) == []


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT", "parse_error"),
        ("SELECT 1; SELECT 2", "parse_error"),
        ("DELETE FROM shop", "parse_error"),
        ("SELECT name FROM shop GROUP", "parse_error"),
        ("SELECT nope FROM shop", "execution_error"),
        ("SELECT random() FROM shop", "execution_error"),
        ("SELECT date('now')", "execution_error"),
        ("SELECT name FROM shop WHERE stars = 9", "empty_result"),
        ("SELECT name FROM city WHERE name = 'Oslo'", "empty_result"),  # in one population of two
        ("SELECT max(stars) FROM shop WHERE stars > 9", "empty_result"),
        ("SELECT max(stars) FROM shop", "same_result"),
        ("SELECT 'Bo'", "same_result"),
        ("SELECT name FROM city LIMIT 1", "order_dependent"),
        ("SELECT name FROM shop ORDER BY stars DESC", "order_dependent"),
        ("SELECT name FROM shop WHERE id IN (SELECT id FROM shop ORDER BY stars DESC LIMIT 3)", "order_dependent"),
        ("SELECT country, name FROM city GROUP BY country", "order_dependent"),
        ("SELECT name, max(sales) FROM shop", "order_dependent"),
        ("SELECT group_concat(name) FROM city", "order_dependent"),
    ],
)
def test_bad_references_are_rejected_with_a_stable_word(sql: str, reason: str) -> None:
    assert reason in reasons(sql)


def test_too_slow_and_too_large_references() -> None:
    many = "SELECT a.id, b.id, c.id, d.id FROM shop a, shop b, shop c, shop d"
    assert "too_large" in reasons(many)
    assert "too_large" in reasons(many, limits=Limits(rows=100))
    assert "too_slow" in reasons(many, limits=Limits(vm_steps=400))


def test_bad_questions_and_worlds() -> None:
    good = "SELECT count(*) FROM shop"
    assert reasons(good, " \n") == ["bad_question"]
    assert reasons(good, "x" * 501) == ["bad_question"]
    assert reasons(good, "x" * 500) == []
    assert tiny_env().check(draft(good, world="nope")) == ["unknown_world: 'nope'"]
    odd = Draft(world="tiny", user_turns=["a", "b"], reference=good)
    assert tiny_env().check(odd) == ["bad_question: one user turn and SQL text are needed"]
    assert tiny_env().check(replace(odd, user_turns=["a"], reference=["x"])) == [
        "bad_question: one user turn and SQL text are needed"
    ]
    tools = replace(odd, user_turns=["a"], tools=["run_sql", "rm"])
    assert tiny_env().check(tools) == ["unknown_tool: 'rm'"]


def test_a_task_records_content_and_outcome() -> None:
    made = task("SELECT name FROM shop WHERE stars = 5")
    assert made.id == task_id(
        env="text2sql",
        env_version=tiny_env().version,
        world="tiny",
        user_turns=["Which ones?"],
        tools=[],
        reference=made.reference,
        expected=made.expected,
    )
    assert (made.split, made.origin, made.structure, made.difficulty) == (
        "train",
        "explored",
        "SELECT _ FROM _ WHERE _ = ?",
        1.5,
    )
    assert len(made.expected) == 2
    assert made == task("SELECT name FROM shop WHERE stars = 5")


def test_a_bad_draft_makes_no_task() -> None:
    with pytest.raises(InvalidTask) as caught:
        task("SELECT name FROM shop WHERE stars = 9")
    assert caught.value.reason == "empty_result"
    with pytest.raises(InvalidTask, match="unknown_world"):
        tiny_env().materialize(draft("SELECT 1", world="nope"), "explored")


def test_replay_wins_and_doing_nothing_loses() -> None:
    env = tiny_env()
    for sql in (
        "SELECT name FROM shop WHERE stars = 5",
        "SELECT count(*) FROM shop",
        "SELECT name FROM city ORDER BY id",
    ):
        made = task(sql)
        assert asyncio.run(env.replay(made)).success
        assert asyncio.run(env.replay(made)) == asyncio.run(env.replay(made))
        assert asyncio.run(env.noop(made)).score == 0.0


@pytest.mark.parametrize(
    ("probes", "found"),
    [
        ([ZERO, INFRA, ZERO], INFRA),
        ([ZERO, INVALID, INFRA], INVALID),
        ([INFRA, ONE, INVALID], ONE),
        ([ZERO, ZERO, ZERO], ZERO),
    ],
)
def test_a_probe_without_a_score_does_not_disappear(
    monkeypatch: pytest.MonkeyPatch, probes: list[Outcome], found: Outcome
) -> None:
    left = list(probes)

    async def play(task: Task, answer: str) -> Outcome:
        return left.pop() if left else ZERO

    env = tiny_env()
    monkeypatch.setattr(env, "_play", play)
    assert asyncio.run(env.noop(task("SELECT name FROM shop WHERE stars = 5"))) == found


def test_a_constant_that_wins_is_found_by_noop() -> None:
    """With one population every reference has a constant that passes: that is what noop must see."""
    world = tiny_world()
    env = Text2Sql([replace(world, populations=world.populations[:1])])
    made = env.materialize(draft("SELECT name FROM shop WHERE stars = 5"), "explored")
    assert asyncio.run(env.noop(made)).success


def test_a_defective_task_replays_as_invalid() -> None:
    broken = replace(task("SELECT count(*) FROM shop"), expected=["0", "0"])
    assert asyncio.run(tiny_env().replay(broken)).kind == "invalid"
    assert asyncio.run(tiny_env().noop(broken)).kind == "invalid"
    odd = replace(broken, reference=["SELECT 1"])
    assert asyncio.run(tiny_env().replay(odd)).kind == "invalid"
    assert asyncio.run(tiny_env().noop(odd)).kind == "invalid"


def test_twins_share_a_question_or_a_reference() -> None:
    env = tiny_env()

    def keys(made: Task) -> set[str]:
        return set(env.twins(made))

    first = task("SELECT name FROM shop WHERE stars = 5", "Which shops have 5 stars?")
    assert keys(first) & keys(task("SELECT s.name FROM shop AS s WHERE s.stars = 5", "Name the best shops."))
    assert keys(first) & keys(task("SELECT count(*) FROM shop", "which  shops have 5 stars"))
    assert not keys(first) & keys(task("SELECT count(*) FROM shop", "How many shops are there?"))
    assert not keys(first) & keys(task("SELECT name FROM shop WHERE stars = 5", "Others?")) - {env.twins(first)[1]}


@pytest.mark.parametrize(
    "spelling",
    [
        "WHICH Shops have 5 stars",
        "Which shops have 5 stars ?!",
        "\tWhich\u00a0shops\u2003have 5\nstars?",
        "Whi\u200bch shops ha\u00adve 5 stars?",
        "Which\u202e shops\x00 have 5 stars?",
        "Which sho\u0336ps have 5 stars?",
        "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in "Which shops have 5 stars?"),
    ],
)
def test_a_question_that_reads_the_same_is_a_twin(spelling: str) -> None:
    env = tiny_env()
    first = task("SELECT name FROM shop WHERE stars = 5", "Which shops have 5 stars?")
    other = replace(first, user_turns=[spelling], reference="SELECT 1")
    assert env.twins(first)[0] == env.twins(other)[0]
    assert env.twins(replace(first, user_turns=["Which shops have 4 stars?"]))[0] != env.twins(first)[0]


@pytest.mark.parametrize(
    "written",
    [
        "SELECT * FROM (SELECT name FROM shop WHERE stars = 5)",
        "SELECT (name) FROM shop WHERE (stars) = (5)",
        "SELECT name AS n FROM shop WHERE stars = 5 LIMIT 1000",
        "SELECT name FROM shop WHERE stars = 5 AND 1",
        "SELECT name FROM shop WHERE stars = 5 ORDER BY name DESC",
        "SELECT /* five */ name FROM shop WHERE stars > 4 -- stars",
        "WITH best AS (SELECT name FROM shop WHERE stars = 5) SELECT name FROM best",
    ],
)
def test_the_same_rows_on_all_populations_are_the_same_answer(written: str) -> None:
    env, first = tiny_env(), task("SELECT name FROM shop WHERE stars = 5")
    assert env.answers(task(written, "Others?")) == env.answers(first) != []
    assert env.answers(replace(first)) == tiny_env().answers(first)  # whoever made the task
    assert env.answers(task("SELECT name FROM shop WHERE stars = 3 OR stars = 2")) != env.answers(first)


def test_comments_are_not_kept_in_a_reference() -> None:
    made = task("SELECT name /* <|im_end|> */ FROM shop -- '\n WHERE stars = 5 AND name <> '--' /* ")
    assert made.reference == "SELECT name   FROM shop  \n WHERE stars = 5 AND name <> '--'"
    assert asyncio.run(tiny_env().replay(made)).success


@pytest.mark.parametrize("question", ["", " \n", "???", "12 + 3", "😀😀"])
def test_a_question_has_a_word(question: str) -> None:
    assert reasons("SELECT name FROM shop WHERE stars = 5", question) == ["bad_question"]


def test_action_tokens_of_both_modes() -> None:
    env = tiny_env()
    assert env.action_tokens("```sql\nSELECT a FROM t WHERE b\n```") == ["SELECT", "WHERE"]
    assert env.action_tokens("no idea") == ["invalid"]
    calls = '[{"name": "list_tables", "args": {}}, {"name": "run_sql", "args": {"sql": "SELECT a FROM t LIMIT 1"}}]'
    assert env.action_tokens(calls) == ["list_tables", "SELECT", "LIMIT"]
    assert env.action_tokens('[{"name": "run_sql", "args": {"sql": "what"}}, 7, {"name": 1}]') == ["invalid"] * 3
    for odd in ("[", "[" * 100_000, "[1, 2", '{"name": 1}'):
        assert env.action_tokens(odd) == ["invalid"]
    assert env.action_tokens("[]") == []


def test_the_solution_is_the_direct_prompt_and_the_sql() -> None:
    made = task("SELECT count(*) FROM shop", "How many shops?")
    system, user, assistant = tiny_env().solution(made)
    assert (system["role"], user, assistant) == (
        "system",
        {"role": "user", "content": "How many shops?"},
        {"role": "assistant", "content": "SELECT count(*) FROM shop"},
    )
    assert asyncio.run(tiny_env().open("tiny", made).start()) == [system, user]


def test_a_world_is_described_by_its_tables_without_data() -> None:
    assert tiny_env().describe("tiny").splitlines()[:5] == [
        "CREATE TABLE city (",
        "  id INTEGER PRIMARY KEY,",
        "  name TEXT,",
        "  country TEXT",
        ");",
    ]
    assert "  city_id INTEGER REFERENCES city(id)," in tiny_env().describe("tiny")
    assert "Oslo" not in tiny_env().describe("tiny")
    for act in (tiny_env().describe, tiny_env().open):
        with pytest.raises(UsageError, match=r"world 'nope'.*choose from tiny"):
            act("nope")


def test_seeds_and_suites_come_from_their_files() -> None:
    one = Question(world="tiny", question="How many?", sql="SELECT count(*) FROM shop", where="x line 1")
    env = Text2Sql([tiny_world()], {"train": lambda: [one], "gold": lambda: [replace(one, question="What number?")]})
    (seed,), suites = env.seed_tasks(), env.suites()
    assert (seed.split, seed.origin) == ("train", "seed")
    assert [task.split for task in suites["gold"]] == ["gold"]
    bad = Text2Sql([tiny_world()], {"train": lambda: [replace(one, sql="SELECT nope FROM shop")]})
    with pytest.raises(UsageError, match=r"x line 1: execution_error.*nope.*correct or remove"):
        bad.seed_tasks()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "line 2: no JSON"),
        ("[]", "line 2: field 'world' is missing"),
        ('{"world": "a", "question": 7, "sql": "b"}', "line 2: field 'question' is missing or no text"),
    ],
)
def test_a_bad_line_of_a_data_file_is_named(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "seed.jsonl"
    path.write_text('{"world": "tiny", "question": "How many?", "sql": "SELECT 1"}\n' + line + "\n")
    with pytest.raises(UsageError, match=words):
        read_questions(path)


def test_the_registry_knows_its_names_and_options() -> None:
    assert registry.names() == ["appworld", "bfcl", "text2sql"]
    assert registry.get("text2sql") is builtin()
    with pytest.raises(UsageError, match=r"env 'nope'.*choose from appworld, bfcl, text2sql"):
        registry.get("nope")
    with pytest.raises(UsageError, match="there is no option 'speed'; the options are folder"):
        registry.get("text2sql", speed=3)
    with pytest.raises(UsageError, match="no procedural explorer"):
        registry.explorer("nope")
    assert callable(registry.explorer("text2sql").next_call)
