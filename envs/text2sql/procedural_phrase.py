"""From query to question: English that says which rows, which columns, what order and how many.

    phrase   a question that determines the query; `rng` chooses among several wordings

Wording comes from the names of tables and columns, procedural_words and this file alone.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from envs.text2sql.procedural_query import Agg, Col, Cond, Expr, Order, Query
from envs.text2sql.procedural_rows import MEANS, Rows
from envs.text2sql.procedural_scene import NUMERIC, Table
from envs.text2sql.procedural_words import AMOUNT, COMPARED, COUNTED, article, listed, plural, shown, spoken

NUMBERS = {1: "one", 2: "two", 3: "three", 4: "four", 5: "five"}


def phrase(query: Query, tables: dict[str, Table], rng: random.Random) -> str:
    """A question whose answer is the query's result. The query's columns must all name their table."""
    text = Question(query, tables, rng).question()
    return text[0].upper() + text[1:]


class Question(Rows):
    """A whole query, being put into words."""

    def question(self) -> str:
        query = self.query
        if query.combined:
            return self.combination(*query.combined)
        if query.group:
            return self.grouping()
        if any(isinstance(item, Agg) for item in query.select):
            return self.total()
        if self.is_top():
            return self.top()
        return self.listing()

    # -------------------------------------------------------- what is shown

    def names(self, items: Sequence[Expr]) -> str:
        """Columns of several rows: `titles and author names`."""
        return listed([plural(self.named(item)) for item in items if isinstance(item, Col)])

    def aggregate(self, item: Agg, rows: str) -> str:
        """`the average salary of teachers`, `the number of books`."""
        if item.col is None:
            return f"the number of {rows}"
        if item.fn == "COUNT":
            return f"the number of different {plural(self.named(item.col))} of {rows}"
        return f"the {self.pick(*MEANS[item.fn])} {self.named(item.col)} of {rows}"

    def show(self) -> str:
        return self.pick("show", "list", "give", "find", "return")

    # -------------------------------------------------------- plain lists

    def listing(self) -> str:
        query = self.query
        tail = self.sorting() + self.cut()
        what, rows = self.names(query.select), self.text()
        if query.distinct:
            return self.pick(
                f"{self.show()} the different {what} of {rows}{tail}.",
                f"which different {what} do {rows} have{tail}?",
                f"{self.show()} the {what} of {rows}, each only once{tail}.",
            )
        does = self.predicates()
        if does and not tail and self.rng.random() < 0.4:
            return f"which {self.noun} {does}? {self.show().capitalize()} {self.pick('their', 'the')} {what}."
        if any(isinstance(item, Col) and item.table != self.root for item in query.select):
            return self.pick(
                f"for all {rows}, {self.show()} the {what}{tail}.", f"{self.show()} the {what} of all {rows}{tail}."
            )
        every = "all " if not query.where else self.pick("", "", "the ", "all ")
        return self.pick(
            f"what are the {what} of {every}{rows}{tail}?", f"{self.show()} the {what} of {every}{rows}{tail}."
        )

    def is_top(self) -> bool:
        """The first rows by a number: better said with a superlative."""
        query = self.query
        first = query.order[0].by if query.order else None
        nested = any(isinstance(operand, Query) for cond in query.where for operand in cond.right)
        plain = query.limit is not None and not query.distinct and not nested
        return plain and isinstance(first, Col) and self.numeric(first)

    def top(self) -> str:
        query = self.query
        first, *rest = query.order
        assert isinstance(first.by, Col)
        limit = query.limit or 0
        many = limit != 1
        noun = self.noun if many else spoken(self.root)
        shape = self.extreme(first.by, desc=first.desc)
        count = f"{self.pick(str(limit), NUMBERS.get(limit, str(limit)))} " if many else ""
        rows = shape.format(count, f"{noun}{self.modifiers()}")
        ties = "".join(
            f", ties by {self.owned(key.by)}{' descending' if key.desc else ''}"
            for key in rest
            if isinstance(key.by, Col)
        )
        order = (
            self.pick(", in that order", f", starting with the {'highest' if first.desc else 'lowest'}") if many else ""
        )
        what = self.names(query.select) if many else listed([self.named(c) for c in query.select if isinstance(c, Col)])
        verb = "are" if many else "is"
        return self.pick(
            f"what {verb} the {what} of the {rows}{order}{ties}?",
            f"{self.show()} the {what} of the {rows}{order}{ties}.",
        )

    def extreme(self, col: Col, *, desc: bool) -> str:
        """`{} oldest {}` or `{}{} with the highest age`, to be filled with how many and the noun."""
        natural = self.wording(col) if col.table == self.root else None
        name = spoken(col.name)
        if natural and self.rng.random() < 0.6:
            return f"{{}}{natural.most if desc else natural.least} {{}}"
        if name in COUNTED:
            return f"{{}}{{}} with the {'most' if desc else 'fewest'} {name}"
        if name.endswith("year"):
            return f"{{}}{{}} with the {'latest' if desc else 'earliest'} {self.named(col)}"
        rank = self.pick("highest", "largest") if desc else self.pick("lowest", "smallest")
        return f"{{}}{{}} with the {rank} {self.named(col)}"

    # -------------------------------------------------------- order and limit

    def numeric(self, col: Col) -> bool:
        return self.tables[col.table].types[col.name].upper().startswith(NUMERIC)

    def sorting(self) -> str:
        """`, sorted by age in descending order, ties by name`; empty without an order."""
        if not self.query.order:
            return ""
        first, *rest = self.query.order
        text = f", {self.pick('sorted', 'ordered')} by {self.key(first)} {self.direction(first)}"
        return text + "".join(f", ties by {self.key(key)}{' descending' if key.desc else ''}" for key in rest)

    def key(self, key: Order) -> str:
        if isinstance(key.by, Col):
            return self.named(key.by)
        counted = [item for item in self.query.select if isinstance(item, Agg)]
        if counted == [key.by]:
            return "that number" if key.by.fn == "COUNT" else f"that {MEANS[key.by.fn][0]}"
        return self.aggregate(key.by, f"their {self.noun}")

    def direction(self, key: Order) -> str:
        if isinstance(key.by, Col) and not self.numeric(key.by):
            return self.pick("in reverse alphabetical order", "from Z to A") if key.desc else "in alphabetical order"
        if key.desc:
            return self.pick("in descending order", "from highest to lowest")
        return self.pick("in ascending order", "from lowest to highest")

    def cut(self) -> str:
        """`, only the first 3`; empty without a limit."""
        limit = self.query.limit
        return "" if limit is None else f", only the first {NUMBERS.get(limit, limit) if limit == 1 else limit}"

    # -------------------------------------------------------- aggregates

    def total(self) -> str:
        """A question for one row of aggregates."""
        items = [item for item in self.query.select if isinstance(item, Agg)]
        rows, does = self.text(), self.predicates()
        if len(items) == 1 and items[0].col is None:
            if does and self.rng.random() < 0.4:
                return f"how many {self.noun} {does}?"
            return self.pick(f"how many {rows} are there?", f"what is the number of {rows}?", f"count the {rows}.")
        if len(items) == 1 and items[0].fn == "COUNT" and items[0].col:
            return f"how many different {self.names([items[0].col])} do {rows} have?"
        heads = listed([self.aggregate(item, "").removesuffix(" of ") for item in items])
        verb = "is" if len(items) == 1 else "are"
        every = "all " if not self.query.where else ""
        return self.pick(
            f"what {verb} {heads} of {every}{rows}?", f"{self.pick('find', 'compute')} {heads} of {every}{rows}."
        )

    def grouping(self) -> str:
        query = self.query
        rows = self.text()
        counted = [item for item in query.select if isinstance(item, Agg)]
        tail = self.sorting() + self.cut()
        group = listed([self.named(col) for col in query.group])
        if not counted:
            return self.groups_only(rows, tail)
        kept = f", keeping only those with {self.threshold(query.having, rows)}" if query.having else ""
        if query.select != (*query.group, *counted):
            parts = [self.aggregate(x, rows) if isinstance(x, Agg) else f"the {self.named(x)}" for x in query.select]
            return f"for each {group}, {self.show()} only {listed(parts)}{kept}{tail}."
        own = listed([self.aggregate(item, f"its {rows}") for item in counted])
        options = [f"{self.show()} each {group} with {own}{kept}{tail}."]
        if not kept and not tail:
            asked = listed([self.aggregate(item, rows) for item in counted])
            options.append(f"what is {asked} for each {group}?" if len(counted) == 1 else options[0])
            options.append(f"for each {group}, {self.show()} the {group} and {asked}.")
            if counted[0].col is None and len(counted) == 1:
                options.append(f"how many {rows} are there for each {group}?")
        return self.pick(*options)

    def groups_only(self, rows: str, tail: str) -> str:
        """Only the groups are shown, not what was counted in them."""
        groups = listed([plural(self.named(col)) for col in self.query.group])
        if self.query.having is None:
            if self.is_ranking():
                return self.ranking(groups, rows)
            return f"{self.show()} the {groups} of {rows}, each only once{tail}."
        kept = self.threshold(self.query.having, rows)
        return self.pick(f"which {groups} have {kept}{tail}?", f"{self.show()} the {groups} with {kept}{tail}.")

    def is_ranking(self) -> bool:
        """The groups with the most or fewest rows."""
        query = self.query
        return query.limit is not None and bool(query.order) and query.order[0].by == Agg("COUNT")

    def ranking(self, groups: str, rows: str) -> str:
        """`which 3 cities have the most patients, ties by city?`"""
        first, *rest = self.query.order
        limit = self.query.limit or 0
        count = f"{limit} {groups}" if limit > 1 else listed([self.named(col) for col in self.query.group])
        rank = "the most" if first.desc else "the fewest"
        ties = "".join(f", ties by {self.key(key)}{' descending' if key.desc else ''}" for key in rest)
        order = f", in that order{ties}" if limit > 1 else ties
        return f"which {count} {'have' if limit > 1 else 'has'} {rank} {rows}{order}?"

    def threshold(self, having: Cond, rows: str) -> str:
        """`more than 3 books`, `an average salary of teachers above 300`."""
        item, value = having.left, shown(having.right[0])
        if not isinstance(item, Agg):
            raise ValueError("a column in HAVING")
        if item.col is None:
            return f"{self.pick(*AMOUNT[having.op])}{value} {rows}"
        words = article(self.aggregate(item, f"their {rows}").removeprefix("the "))
        return f"{words} {self.pick(*COMPARED[having.op][:2])}{value}"

    # -------------------------------------------------------- set operations

    def combination(self, operation: str, second: Query) -> str:
        there = Question(second, self.tables, self.rng)
        what, first, other = self.names(self.query.select), self.text(), there.text()
        tail = self.sorting() + self.cut()
        if operation == "INTERSECT":
            return self.pick(
                f"which {what} occur both among {first} and among {other}{tail}?",
                f"{self.show()} the {what} shared by {first} and {other}{tail}.",
            )
        if operation == "EXCEPT":
            return self.pick(
                f"which {what} occur among {first} but not among {other}{tail}?",
                f"{self.show()} the {what} of {first} except those of {other}{tail}.",
            )
        return f"{self.show()} the {what} of {first} together with the {what} of {other}, each only once{tail}."
