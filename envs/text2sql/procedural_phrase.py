"""From query to question: English that says which rows, which columns, what order and how many.

    phrase   a question that determines the query; `rng` chooses among several wordings

Every row of a query is one row of its *root* table (procedural_fill), so a question speaks of the root's rows and of
"their author", "their home team". Wording comes from the names of tables and columns and from this file alone.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from envs.text2sql.procedural_query import Agg, Col, Cond, Expr, Hole, Literal, Order, Query
from envs.text2sql.procedural_scene import Table

IRREGULAR = {"person": "people", "child": "children", "man": "men", "woman": "women", "staff": "staff", "fans": "fans"}
UNCOUNTED = ("pages", "days", "hours", "credits", "fans", "goals", "points", "seats", "minutes", "quantity", "stock")
PLACES = ("city", "country", "town", "region", "state")
SHORT = {"dept": "department", "qty": "quantity", "yr": "year", "num": "number", "desc": "description"}
SUPERLATIVE = {"MAX": ("highest", "maximum", "largest"), "MIN": ("lowest", "minimum", "smallest")}
MEANS = {"AVG": ("average", "mean"), "SUM": ("total", "summed"), **SUPERLATIVE}
BESIDE = {
    "=": ("",),
    "!=": ("not equal to ", "other than "),
    ">": ("above ", "greater than ", "over ", "higher than "),
    "<": ("below ", "less than ", "under ", "lower than "),
    ">=": ("at least ", "no less than "),
    "<=": ("at most ", "no more than "),
}
IN_TIME = {"=": ("",), ">": ("after ",), "<": ("before ",), ">=": ("no earlier than ",), "<=": ("no later than ",)}


def phrase(query: Query, tables: dict[str, Table], rng: random.Random) -> str:
    """A question whose answer is the query's result. The query's columns must all name their table."""
    text = _Words(query, tables, rng).question()
    return text[0].upper() + text[1:]


def plural(noun: str) -> str:
    head, _, last = noun.rpartition(" ")
    start = f"{head} " if head else ""
    if last in IRREGULAR:
        return start + IRREGULAR[last]
    if last in UNCOUNTED:
        return noun
    if last.endswith(("s", "x", "ch", "sh", "z")):
        return f"{noun}es"
    if last.endswith("y") and last[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}s"


def spoken(name: str) -> str:
    """A table's or column's name in words."""
    return " ".join(SHORT.get(word, word) for word in name.lower().split("_") if word)


def role(column: str, parent: str) -> str:
    """What a foreign key calls its parent: `home_id` -> `home team`, `author_id` -> `author`."""
    stem = spoken(column.lower().removesuffix("_id").removesuffix("id"))
    noun = spoken(parent)
    return noun if not stem or stem in noun or noun in stem else f"{stem} {noun}"


def listed(parts: Sequence[str], last: str = "and") -> str:
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + f" {last} {parts[-1]}"


def number(value: Literal | Hole | Query) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


class _Words:
    """One query being put into words."""

    def __init__(self, query: Query, tables: dict[str, Table], rng: random.Random) -> None:
        self.query = query
        self.tables = tables
        self.rng = rng
        self.roles: dict[str, str] = {}
        """Parent table -> what it is to the rows."""
        for join in query.joins:
            for child, key in ((join.left, join.right), (join.right, join.left)):
                if (child.name, key.table, key.name) in tables[child.table].links:
                    self.roles[key.table] = role(child.name, key.table)
                    break
        roots = [name for name in query.tables if name not in self.roles]
        self.root = roots[0] if roots else query.table

    # -------------------------------------------------------- nouns

    def pick(self, *options: str) -> str:
        return self.rng.choice(options)

    @property
    def rows(self) -> str:
        return plural(spoken(self.root))

    @property
    def row(self) -> str:
        return spoken(self.root)

    def column(self, col: Col, owner: str = "") -> str:
        """`title`; `author's country` for a parent's column; `home team` for a foreign key."""
        link = next((parent for name, parent, _ in self.tables[col.table].links if name == col.name), None)
        word = role(col.name, link) if link else spoken(col.name)
        if col.table == self.root or col.table not in self.roles:
            return f"{owner}{word}"
        return f"{self.roles[col.table]}'s {word}"

    def columns(self, items: Sequence[Expr]) -> str:
        """`titles and author names`: what is listed of several rows."""
        words = [self.column(item).replace("'s ", " ") for item in items if isinstance(item, Col)]
        return listed([plural(word) for word in words])

    def aggregate(self, item: Agg, rows: str) -> str:
        """`the average pages of books`, `the number of books`."""
        if item.col is None:
            return f"the number of {rows}"
        word = self.column(item.col).replace("'s ", " ")
        if item.fn == "COUNT":
            return f"the number of different {plural(word)} of {rows}"
        return f"the {self.pick(*MEANS[item.fn][:2])} {word} of {rows}"

    # -------------------------------------------------------- conditions

    def filters(self) -> str:
        """` whose city is Oslo and whose age is above 30`, with a leading space; empty without conditions."""
        conds = self.query.where
        if not conds:
            return ""
        same = self.query.either and len({(c.left, c.op) for c in conds}) == 1 and conds[0].op == "="
        if same and isinstance(conds[0].left, Col):
            values = [number(value) for cond in conds for value in cond.right]
            return f" whose {self.column(conds[0].left)} is {listed(values, 'or')}"
        words = [self.condition(cond) for cond in conds]
        if self.query.either:
            return " " + listed(words, "or")
        return " " + " and ".join(words)

    def condition(self, cond: Cond) -> str:
        if isinstance(cond.left, Agg):
            raise ValueError("an aggregate in WHERE")
        inner = cond.right[0] if cond.right else None
        if isinstance(inner, Query):
            return self.nested(cond, cond.left, inner)
        word = self.column(cond.left)
        if cond.op == "IS NULL":
            return self.pick(f"that have no {word} recorded", f"with no recorded {word}")
        if cond.op == "IS NOT NULL":
            return self.pick(f"that have a {word} recorded", f"with a recorded {word}")
        values = [number(value) for value in cond.right]
        if cond.op.endswith("LIKE"):
            return f"whose {word} {self.likeness(values[0], cond.op.startswith('NOT'))}"
        negated = "not " if cond.op.startswith("NOT") else ""
        if cond.op.endswith("BETWEEN"):
            return f"whose {word} is {negated}between {values[0]} and {values[1]}"
        if cond.op.endswith("IN"):
            either = self.pick("either ", "") if not negated else "not "
            return f"whose {word} is {either}{listed(values, 'or')}"
        return self.comparison(cond.left, cond.op, values[0], word)

    def comparison(self, col: Col, op: str, value: str, word: str) -> str:
        own = col.table == self.root
        if spoken(col.name).endswith("year") and op in IN_TIME:
            when = self.pick(*IN_TIME[op])
            if own and op in "=":
                return self.pick(f"in {value}", f"from {value}", f"from the year {value}", f"whose {word} is {value}")
            return self.pick(f"whose {word} is {when}{value}", f"with a {word} {when}{value}")
        if own and op == "=" and spoken(col.name) in PLACES:
            return self.pick(f"in {value}", f"from {value}", f"whose {word} is {value}", f"with {word} {value}")
        if op == "!=":
            return self.pick(f"whose {word} is not {value}", f"with a {word} other than {value}")
        beside = self.pick(*BESIDE[op])
        if spoken(col.name) in UNCOUNTED and own and op in ("<", ">"):
            return f"with {'more' if op == '>' else self.pick('fewer', 'less')} than {value} {word}"
        if op == "=":
            return self.pick(f"whose {word} is {value}", f"whose {word} is {value}", f"with {word} {value}")
        return self.pick(f"whose {word} is {beside}{value}", f"with {word} {beside}{value}")

    def likeness(self, pattern: str, negated: bool) -> str:
        text = pattern.strip("%")
        does = "does not " if negated else ""
        s = "" if negated else "s"
        if pattern.startswith("%") and pattern.endswith("%"):
            return f"{does}contain{s} '{text}'"
        return f"{does}end{s} with '{text}'" if pattern.startswith("%") else f"{does}start{s} with '{text}'"

    def nested(self, cond: Cond, left: Col, inner: Query) -> str:
        there = _Words(inner, self.tables, self.rng)
        item = inner.select[0]
        if isinstance(item, Agg) and item.col is not None:
            word = self.column(left)
            rows = f"{self.pick('all ', '') if not inner.where else ''}{there.rows}{there.filters()}"
            if cond.op == "=" and item.fn in SUPERLATIVE:
                return f"with the {SUPERLATIVE[item.fn][0]} {word} among {rows}"
            beside = self.pick(*BESIDE[cond.op]) if cond.op != "=" else "equal to "
            return f"whose {word} is {beside}the {MEANS[item.fn][0]} {there.column(item.col)} of {rows}"
        if isinstance(item, Col) and not self.linked(left, item):
            beside = self.pick(*BESIDE[cond.op]) if cond.op != "=" else "equal to "
            return f"whose {self.column(left)} is {beside}that of the {there.row}{there.filters()}"
        return self.member(cond, left, item, there)

    def linked(self, left: Col, item: Col) -> bool:
        pairs = ((left, item), (item, left))
        return any((child.name, key.table, key.name) in self.tables[child.table].links for child, key in pairs)

    def member(self, cond: Cond, left: Col, item: Expr, there: _Words) -> str:
        """Membership along a foreign key, from the child's side or from the parent's."""
        if not isinstance(item, Col):
            raise ValueError("membership in an aggregate")
        negated = cond.op.startswith("NOT")
        link = next((parent for name, parent, _ in self.tables[left.table].links if name == left.name), None)
        if link == item.table:
            one = f"{self.column(left)} is {'not ' if negated else ''}"
            return f"whose {one}{self.pick('a', 'one of the')} {there.row if one.endswith(' a') else ''}".rstrip() + (
                f" {there.rows}{there.filters()}"
            )
        name = role(item.name, left.table)
        who = "that" if left.table == self.root else f"whose {self.roles.get(left.table, spoken(left.table))}"
        has, is_ = ("have", "are") if left.table == self.root else ("has", "is")
        if name != spoken(left.table):
            count = "of no" if negated else "of at least one"
            return f"{who} {is_} the {name} {count} {there.row}{there.filters()}"
        return f"{who} {has} {'no' if negated else 'at least one'} {there.row}{there.filters()}"

    # -------------------------------------------------------- order and limit

    def direction(self, key: Order) -> str:
        numeric = isinstance(key.by, Agg) or self.tables[key.by.table].types[key.by.name].upper().startswith("INT")
        if not numeric:
            return self.pick("in reverse alphabetical order", "from Z to A") if key.desc else "in alphabetical order"
        if key.desc:
            return self.pick("in descending order", "from highest to lowest")
        return self.pick("in ascending order", "from lowest to highest")

    def sort_key(self, key: Order) -> str:
        if isinstance(key.by, Agg):
            return self.aggregate(key.by, self.rows)
        return self.column(key.by)

    def sorting(self) -> str:
        """`, sorted by pages in descending order, then by title ...`; empty without an order."""
        if not self.query.order:
            return ""
        first, *rest = self.query.order
        text = f", {self.pick('sorted', 'ordered')} by {self.sort_key(first)} {self.direction(first)}"
        for key in rest:
            text += f", {self.pick('then by', 'ties by')} {self.sort_key(key)}" + (" descending" if key.desc else "")
        return text

    def cut(self) -> str:
        """`, only the first 3`; empty without a limit."""
        limit = self.query.limit
        if limit is None:
            return ""
        return f", {self.pick('only the first', 'limited to the first')} {'one' if limit == 1 else limit}"

    # -------------------------------------------------------- questions

    def question(self) -> str:
        query = self.query
        if query.combined:
            return self.combination(*query.combined)
        if query.group:
            return self.grouping()
        if any(isinstance(item, Agg) for item in query.select):
            return self.total() + "?"
        if query.limit is not None and query.order and not query.distinct and isinstance(query.order[0].by, Col):
            return self.superlative()
        return self.listing()

    def ask(self, what: str, tail: str) -> str:
        start, end = self.rng.choice(
            (("what are ", "?"), ("list ", "."), ("show ", "."), ("give ", "."), ("find ", "."), ("return ", "."))
        )
        return f"{start}{what}{tail}{end}"

    def listing(self) -> str:
        rows = f"{self.rows}{self.filters()}"
        tail = self.sorting() + self.cut()
        elsewhere = any(isinstance(item, Col) and item.table != self.root for item in self.query.select)
        if self.query.distinct:
            return self.ask(
                f"the {self.pick('different', 'distinct')} {self.columns(self.query.select)} of {rows}", tail
            )
        if elsewhere:
            words = listed([f"the {self.column(item)}" for item in self.query.select if isinstance(item, Col)])
            return self.pick("for each ", "for every ") + f"{self.row}{self.filters()}, show {words}{tail}."
        every = self.pick("", "", "all ") if not self.query.where else ""
        return self.ask(f"the {self.columns(self.query.select)} of {every}{rows}", tail)

    def superlative(self) -> str:
        first, *rest = self.query.order
        limit = self.query.limit or 0
        col = first.by
        assert isinstance(col, Col)
        shown = self.query.select
        words = listed([f"the {self.column(item)}" for item in shown if isinstance(item, Col)])
        if spoken(col.name).endswith("year"):
            rank = "latest" if first.desc else "earliest"
        elif not self.tables[col.table].types[col.name].upper().startswith(("INT", "REAL", "NUM", "FLOA")):
            return self.listing()
        elif spoken(col.name) in UNCOUNTED:
            rank = "most" if first.desc else "fewest"
        else:
            rank = self.pick("highest", "largest") if first.desc else self.pick("lowest", "smallest")
        rows = f"{self.row}{self.filters()}" if limit == 1 else f"{limit} {self.rows}{self.filters()}"
        ties = "".join(f", ties by {self.sort_key(key)}" + (" descending" if key.desc else "") for key in rest)
        start, end = self.rng.choice((("what " + ("is" if limit == 1 else "are"), "?"), ("show", "."), ("find", ".")))
        order = "" if limit == 1 else self.pick(", in that order", f", {rank} first")
        return f"{start} {words} of the {rows} with the {rank} {self.column(col)}{order}{ties}{end}"

    def total(self) -> str:
        """A question for one row of aggregates, without its question mark."""
        rows = f"{self.rows}{self.filters()}"
        items = [item for item in self.query.select if isinstance(item, Agg)]
        if len(items) == 1 and items[0].col is None:
            return self.pick(f"how many {rows} are there", f"what is the number of {rows}", f"how many {rows} exist")
        if len(items) == 1 and items[0].fn == "COUNT":
            word = self.columns([items[0].col] if items[0].col else [])
            return f"how many {self.pick('different', 'distinct')} {word} do {rows} have"
        heads = [self.aggregate(item, "").removesuffix(" of ") for item in items]
        return f"what {'is' if len(heads) == 1 else 'are'} {listed(heads)} of {rows}"

    def grouping(self) -> str:
        query = self.query
        rows = f"{self.rows}{self.filters()}"
        group = listed([self.column(col).replace("'s ", " ") for col in query.group])
        shown = [item for item in query.select if isinstance(item, Agg)]
        keep = f", keeping only those with {self.threshold(query.having, rows)}" if query.having else ""
        tail = self.sorting() + self.cut()
        if not shown:
            groups = listed([plural(self.column(col).replace("'s ", " ")) for col in query.group])
            if query.having:
                verb = self.pick("which {} have {}", "list the {} with {}")
                return (
                    verb.format(groups, self.threshold(query.having, rows))
                    + tail
                    + "?"[: verb[0] == "w"]
                    + "."[verb[0] == "w" :]
                )
            return f"list the {groups} of {rows}{tail}."
        words = listed([self.aggregate(item, rows) for item in shown])
        if len(shown) == 1 and shown[0].col is None and not query.having and not tail:
            return self.pick(
                f"how many {rows} are there for each {group}?", f"for each {group}, how many {rows} are there?"
            )
        if len(query.select) == len(query.group) + len(shown):
            start = self.pick(f"for each {group}, show the {group} and", f"show each {group} and")
        else:
            start = f"for each {group}, show only"
        return f"{start} {words}{keep}{tail}."

    def threshold(self, having: Cond, rows: str) -> str:
        """`more than 3 books`, `an average pages above 300`."""
        item, value = having.left, number(having.right[0])
        if isinstance(item, Agg) and item.col is None:
            amount = {">": "more than", "<": "fewer than", ">=": "at least", "<=": "at most", "=": "exactly"}
            return f"{amount.get(having.op, 'other than')} {value} {rows}"
        if not isinstance(item, Agg):
            raise ValueError("a column in HAVING")
        words = self.aggregate(item, rows).removeprefix("the ")
        return f"{'an' if words[0] in 'aeiou' else 'a'} {words} {self.pick(*BESIDE[having.op])}{value}"

    def combination(self, operation: str, second: Query) -> str:
        there = _Words(second, self.tables, self.rng)
        first, other = f"{self.rows}{self.filters()}", f"{there.rows}{there.filters()}"
        what = self.columns(self.query.select)
        tail = self.sorting() + self.cut()
        if operation == "INTERSECT":
            return f"which {what} do both {first} and {other} have{tail}?"
        if operation == "EXCEPT":
            return f"which {what} of {first} are not {what} of {other}{tail}?"
        return f"list, without repeats, the {what} of {first} and the {what} of {other}{tail}."
