"""docs/text2sql.md: its example runs, and its table says what the files say."""

from __future__ import annotations

import re
from pathlib import Path

from envs.text2sql.env import builtin
from envs.text2sql.schemas import SCHEMAS

DOC = (Path(__file__).parents[1] / "docs" / "text2sql.md").read_text("utf-8")


def test_the_first_example_runs() -> None:
    example = DOC.split("```python\n")[1].split("```")[0]
    exec(compile(example, "docs/text2sql.md", "exec"), {})


def test_the_table_of_splits_is_right() -> None:
    env = builtin()
    tasks = {"seed": env.seed_tasks(), **env.suites()}
    known = {task.structure for task in tasks["seed"]}
    rows = re.findall(r"^\| (\w+) \| .* \| (\d+) \| (\d+) % \|$", DOC, re.MULTILINE)
    assert [row[0] for row in rows] == list(tasks)
    for split, count, unseen in rows:
        shapes = [task.structure for task in tasks[split]]
        assert len(shapes) == int(count)
        assert round(100 * sum(shape not in known for shape in shapes) / len(shapes)) == int(unseen)


def test_every_database_is_named() -> None:
    for name in SCHEMAS:
        assert re.search(rf"\b{name}\b", DOC)
