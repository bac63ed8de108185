"""Which rows a query speaks of, in words: "books longer than 300 pages whose author is from Japan".

Every row of a query is one row of its *root* table (procedural_fill). A condition becomes a modifier of the root's
noun; one on a parent's column speaks of the parent by its role ("whose home team is in Oslo").
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from envs.text2sql import procedural_words as words
from envs.text2sql.procedural_query import Agg, Col, Cond, Query
from envs.text2sql.procedural_scene import Table
from envs.text2sql.procedural_words import COMPARED, listed, measured, plural, predicate, role, shown, spoken

MEANS = {"AVG": ("average", "mean"), "SUM": ("total",), "MAX": ("highest", "maximum"), "MIN": ("lowest", "minimum")}


class Rows:
    """The rows of one SELECT, being put into words."""

    def __init__(self, query: Query, tables: dict[str, Table], rng: random.Random) -> None:
        self.query = query
        self.tables = tables
        self.rng = rng
        self.roles = self._roles()
        """Parent table -> what it is to the rows."""
        roots = [name for name in query.tables if name not in self.roles]
        self.root = roots[0] if roots else query.table

    def _roles(self) -> dict[str, str]:
        found = {}
        for join in self.query.joins:
            for child, key in ((join.left, join.right), (join.right, join.left)):
                if (child.name, key.table, key.name) in self.tables[child.table].links:
                    found[key.table] = role(child.name, key.table)
                    break
        return found

    def pick(self, *options: str) -> str:
        return self.rng.choice(options)

    # -------------------------------------------------------- nouns

    @property
    def noun(self) -> str:
        """The root's rows: `books`."""
        return plural(spoken(self.root))

    @property
    def who(self) -> str:
        return "who" if spoken(self.root) in words.PEOPLE else "that"

    def text(self) -> str:
        """The rows with all their modifiers: `books longer than 300 pages`."""
        return f"{self.noun}{self.modifiers()}"

    def column(self, col: Col) -> str:
        """`title`; of a foreign key the parent's role."""
        link = next((parent for name, parent, _ in self.tables[col.table].links if name == col.name), None)
        return role(col.name, link) if link else measured(col.name)

    def owned(self, col: Col) -> str:
        """A column from the rows' point of view: `title`, `author's country`."""
        parent = self.roles.get(col.table)
        return f"{parent}'s {self.column(col)}" if parent else self.column(col)

    def named(self, col: Col) -> str:
        """The same as one noun: `title`, `author country`."""
        return self.owned(col).replace("'s number of", "'s").replace("'s ", " ")

    # -------------------------------------------------------- modifiers

    def modifiers(self) -> str:
        """All conditions after the noun, with a leading space; empty without conditions."""
        conds = self.query.where
        if not conds:
            return ""
        if self.query.either:
            return " " + self._either(conds)
        plain = [cond for cond in conds if not any(isinstance(x, Query) for x in cond.right)]
        nested = [cond for cond in conds if cond not in plain]  # last, or what follows would seem to be theirs
        alone = len(conds) == 1
        return " " + " and ".join(self.modifier(cond, alone=alone) for cond in (*plain, *nested))

    def _either(self, conds: Sequence[Cond]) -> str:
        same = len({(cond.left, cond.op) for cond in conds}) == 1 and conds[0].op == "="
        left = conds[0].left
        if same and isinstance(left, Col):
            values = [shown(value) for cond in conds for value in cond.right]
            return f"whose {self.owned(left)} is {self.pick('', 'either ')}{listed(values, 'or')}"
        return "either " + listed([self.modifier(cond) for cond in conds], "or")

    def predicates(self) -> str | None:
        """The conditions as what the rows are or do ("are from Oslo and have ..."), None where English can't."""
        conds = self.query.where
        if not conds or self.query.either or any(isinstance(x, Query) for cond in conds for x in cond.right):
            return None
        parts = [predicate(self.modifier(cond)) for cond in conds]
        return None if None in parts else " and ".join(part for part in parts if part)

    def modifier(self, cond: Cond, *, alone: bool = False) -> str:
        """One condition as a modifier of the root's noun. `alone` lets a parent's noun follow with `of`."""
        col = cond.left
        if isinstance(col, Agg):
            raise ValueError("an aggregate in WHERE")
        inner = cond.right[0] if cond.right else None
        own = self._nested(cond, col, inner) if isinstance(inner, Query) else self._plain(cond, col)
        parent = self.roles.get(col.table)
        if parent is None:
            return own
        if own.startswith("whose "):
            return f"whose {parent}'s {own.removeprefix('whose ')}"
        if alone and self.rng.random() < 0.4:
            return f"of {plural(parent)} {own}"
        return f"whose {parent} {predicate(own, one=True)}"

    def _plain(self, cond: Cond, col: Col) -> str:
        word = self.column(col)
        values = [shown(value) for value in cond.right]
        if cond.op == "IS NULL":
            return self.pick(f"with no {word}", f"whose {word} is missing", f"with no recorded {word}")
        if cond.op == "IS NOT NULL":
            return self.pick(f"with a known {word}", f"whose {word} is recorded")
        negated = "not " if cond.op.startswith("NOT") else ""
        if cond.op.endswith("LIKE"):
            return f"whose {word} {_likeness(values[0], negated=bool(negated))}"
        if cond.op.endswith("BETWEEN"):
            return f"whose {word} is {negated}between {values[0]} and {values[1]}"
        if cond.op.endswith("IN"):
            return f"whose {word} is {negated or self.pick('either ', '')}{listed(values, 'or')}"
        return self.pick(*self._compared(col, cond.op, values[0]))

    def _compared(self, col: Col, op: str, value: str) -> list[str]:
        """Ways to say that a column compares with a value; a natural one weighs as much as the plain ones."""
        name, word = spoken(col.name), self.column(col)
        plain = [f"whose {word} is {beside}{value}" for beside in COMPARED[op]]
        if op == "!=":
            return [f"whose {word} is not {value}", f"with a {word} other than {value}"]
        if name.endswith("year") and op in words.IN_TIME:
            return [f"{when}{value}" for when in words.IN_TIME[op]] * 2 + [
                f"whose {word} is {self.pick(*COMPARED[op])}{value}"
            ]
        if name in words.COUNTED:
            usual = [f"with {amount}{value} {name}" for amount in words.AMOUNT[op]]
        elif op == "=":
            usual = [f"with {word} {value}"]
        else:
            usual = [f"with {words.article(word)} {beside}{value}" for beside in COMPARED[op][:3]]
        if name in words.PLACES and op == "=":
            usual = []
            lives = [f"who live in {value}"] if self._person(col) and name != "country" else []
            usual += [f"in {value}", f"from {value}", f"from {value}", *lives]
        natural = self.wording(col)
        if natural and op in (">", "<"):
            usual += [text.format(value) for text in (natural.more if op == ">" else natural.less)] * 3
        return [self.pick(*plain), *usual]

    def _person(self, col: Col) -> bool:
        return spoken(col.table) in words.PEOPLE

    def wording(self, col: Col) -> words.Wording | None:
        """How people compare by the column; None if another column of the table would sound the same."""
        natural = words.WORDINGS.get(spoken(col.name))
        others = [name for name in self.tables[col.table].types if name != col.name]
        return None if any(words.WORDINGS.get(spoken(name)) == natural for name in others) else natural

    # -------------------------------------------------------- conditions with a query inside

    def _nested(self, cond: Cond, left: Col, inner: Query) -> str:
        there = Rows(inner, self.tables, self.rng)
        item = inner.select[0]
        if isinstance(item, Agg):
            return self._beside_aggregate(cond, left, item, there)
        if self._linked(left, item):
            return self._member(cond, left, item, there)
        if cond.op.endswith("IN"):
            negated = "not " if cond.op.startswith("NOT") else ""
            return f"whose {self.column(left)} is {negated}among the {plural(there.named(item))} of {there.text()}"
        beside = "the same as " if cond.op == "=" else self.pick(*COMPARED[cond.op])
        one = f"{spoken(there.root)}{_singular(there.modifiers())}"
        return f"whose {self.column(left)} is {beside}the {there.named(item)} of the {one}"

    def _beside_aggregate(self, cond: Cond, left: Col, item: Agg, there: Rows) -> str:
        word = self.column(left)
        rows = f"{'all ' if not there.query.where else ''}{there.text()}"
        if item.col is None:
            return f"whose {word} is {self.pick(*COMPARED[cond.op])}the number of {rows}"
        if cond.op == "=" and item.fn in ("MAX", "MIN") and item.col == left:
            return f"with the {MEANS[item.fn][0]} {word} of {rows}"
        if natural := self._beside_average(cond, left, item, there):
            return natural
        means = "number of different" if item.fn == "COUNT" else self.pick(*MEANS[item.fn])
        beside = "equal to " if cond.op == "=" else self.pick(*COMPARED[cond.op])
        return f"whose {word} is {beside}the {means} {there.named(item.col)} of {rows}"

    def _beside_average(self, cond: Cond, left: Col, item: Agg, there: Rows) -> str | None:
        """`older than the average member`, sometimes, where it means just that."""
        natural = self.wording(left) if item.fn == "AVG" and cond.op in (">", "<") and item.col == left else None
        if natural is None or there.query.where or there.query.joins or self.rng.random() < 0.5:
            return None
        ways = [way for way in (natural.more if cond.op == ">" else natural.less) if way.endswith("than {}")]
        return self.rng.choice(ways).format(f"the average {spoken(left.table)}") if ways else None

    def _linked(self, left: Col, item: Col) -> bool:
        pairs = ((left, item), (item, left))
        return any((child.name, key.table, key.name) in self.tables[child.table].links for child, key in pairs)

    def _member(self, cond: Cond, left: Col, item: Col, there: Rows) -> str:
        """Membership along a foreign key: `whose author is` of a child, `who have at least one book` of a parent."""
        negated = cond.op.startswith("NOT") or cond.op == "!="
        if any(name == left.name for name, _, _ in self.tables[left.table].links):
            inside = there.text() if there.query.where or there.query.joins else f"any of the {there.noun}"
            return f"whose {self.column(left)} is {'not ' if negated else ''}among the {inside}"
        name = role(item.name, left.table)
        there_one = f"{spoken(there.root)}{_singular(there.modifiers())}"
        who = "who" if spoken(left.table) in words.PEOPLE else "that"
        if name != spoken(left.table):
            return f"{who} are the {name} of {'no' if negated else 'at least one'} {there_one}"
        if negated:
            return f"with no {there_one}" if self.rng.random() < 0.5 else f"{who} have no {there_one}"
        return f"{who} have {self.pick('at least one ', 'some ')}{there_one}"


def _singular(modifiers: str) -> str:
    """Modifiers after a singular noun: `who live` -> `who lives`."""
    for who in (" who ", " that "):
        if modifiers.startswith(who):
            return who + (predicate(modifiers.strip(), one=True) or "")
    return modifiers


def _likeness(pattern: str, *, negated: bool) -> str:
    """A LIKE pattern in words."""
    verb = {(True, True): "contain", (True, False): "end", (False, True): "start"}.get(
        (pattern.startswith("%"), pattern.endswith("%")), "match"
    )
    text = f"{'does not ' if negated else ''}{verb}{'' if negated else 's'}"
    return f"{text} '{pattern.strip('%')}'" if verb in ("contain", "match") else f"{text} with '{pattern.strip('%')}'"
