"""Check all written questions and rewrite the data files of text2sql: `python -m scripts.build_text2sql`.

The files depend on nothing but the written questions: the same bytes each time. With a problem anywhere nothing
is written, the problems are printed, and the exit status is 1.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from scripts.build_text2sql import heldout_gold, heldout_robust, heldout_shifted, heldout_test, seed
from scripts.build_text2sql.check import canonical, problems, skeleton
from scripts.build_text2sql.parse import Item, parse, reworded

DATA = Path(__file__).parents[2] / "envs" / "text2sql" / "data"


def files() -> dict[str, list[Item]]:
    """The items of each data file, in written order."""
    gold = parse(heldout_gold.QUESTIONS)
    return {
        "seed": parse(seed.QUESTIONS),
        "gold": gold,
        "test": parse(heldout_test.QUESTIONS),
        "shifted": parse(heldout_shifted.QUESTIONS),
        "robust": reworded(heldout_robust.QUESTIONS, gold),
    }


def render(items: list[Item]) -> str:
    """JSON Lines, one item a line: world, question, sql, and of a rewording its kind."""
    lines = (
        {"world": item.world, "question": item.question, "sql": item.sql, **({"kind": item.kind} if item.kind else {})}
        for item in items
    )
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def twins(data: dict[str, list[Item]]) -> list[str]:
    """Questions or statements that occur twice, in one file or in two; a rewording has its gold item's statement."""
    seen: dict[tuple[str, str], str] = {}
    found = []
    for name, items in data.items():
        for item in items:
            keys = [(item.world, item.question.lower()), *([] if item.kind else [(item.world, canonical(item.sql))])]
            for key in keys:
                if key in seen:
                    found.append(f"{name}: {item.question!r} repeats {seen[key]}")
                seen[key] = f"{name}: {item.question!r}"
    return found


def overlap(data: dict[str, list[Item]]) -> list[str]:
    """One line a file: size, distinct skeletons, and the shares whose skeleton no seed has."""
    known = {skeleton(item.sql) for item in data["seed"]}
    lines = []
    for name, items in data.items():
        shapes = [skeleton(item.sql) for item in items]
        new, new_shapes = sum(s not in known for s in shapes), len(set(shapes) - known)
        lines.append(
            f"{name:8} {len(items):4} items, {new / len(items):.0%} of a skeleton that no seed has; "
            f"{len(set(shapes)):3} skeletons, {new_shapes / len(set(shapes)):.0%} of them in no seed"
        )
    return lines


def main() -> int:
    data = files()
    found = [
        f"{name}: {item.question!r}: {p}" for name, items in data.items() for item in items for p in problems(item)
    ]
    found += twins(data)
    if found:
        print("\n".join(found), file=sys.stderr)
        return 1
    DATA.mkdir(exist_ok=True)
    for name, items in data.items():
        (DATA / f"{name}.jsonl").write_text(render(items), encoding="utf-8", newline="\n")
    print("\n".join(overlap(data)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
