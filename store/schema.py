"""The index's tables, rendered from the row dataclasses, and the views that answer the usual questions.

Columns are declared once, in store/rows.py: this file maps annotations to SQL types. The index holds three tables
more: `tool_calls` (derived, below), `cursor` (how far each journal segment is ingested) and `migration`.
"""

from __future__ import annotations

import types
from dataclasses import dataclass, fields
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from store.rows import ROW_TYPES, SUCCESS, Row

KINDS: dict[str, type[Row]] = {row_type.__name__.lower(): row_type for row_type in ROW_TYPES}
"""{kind: row type}; the kind names the journal's lines and the index's table."""

_SCALARS = {str: "VARCHAR", int: "BIGINT", float: "DOUBLE", bool: "BOOLEAN", Any: "JSON"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    name: str
    type: str
    """DuckDB's name of the type."""
    nullable: bool

    def ddl(self) -> str:
        return f'"{self.name}" {self.type}{"" if self.nullable else " NOT NULL"}'


def kind_of(row_type: type[Any]) -> str:
    return row_type.__name__.lower()


def columns(row_type: type[Any]) -> tuple[Column, ...]:
    """The table's columns, in the order of the fields. A `Json` column is nullable: None is NULL."""
    return _COLUMNS[kind_of(row_type)]


def _columns(row_type: type[Row]) -> tuple[Column, ...]:
    hints = get_type_hints(row_type)
    return tuple(_column(field.name, hints[field.name]) for field in fields(row_type))


def _column(name: str, hint: Any) -> Column:
    options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    (inner,) = [option for option in options if option is not type(None)]
    return Column(name=name, type=_sql_type(inner), nullable=inner is Any or len(options) > 1)


def _sql_type(hint: Any) -> str:
    if get_origin(hint) is list:
        return f"{_sql_type(get_args(hint)[0])}[]"
    if get_origin(hint) is Literal:
        return "VARCHAR"
    return _SCALARS[hint]


_COLUMNS = {kind: _columns(row_type) for kind, row_type in KINDS.items()}


def table_ddl(row_type: type[Row]) -> str:
    body = ", ".join(column.ddl() for column in columns(row_type))
    key = ", ".join(f'"{name}"' for name in row_type.KEY)
    return f'CREATE TABLE IF NOT EXISTS "{kind_of(row_type)}" ({body}, PRIMARY KEY ({key}))'


TOOL_CALLS = """
CREATE TABLE IF NOT EXISTS tool_calls (
    trajectory_id VARCHAR NOT NULL,
    "position" BIGINT NOT NULL,
    step BIGINT NOT NULL,
    token VARCHAR NOT NULL)
"""
"""One row an action token, derived from Step.tokens at ingest, so that the rare-pattern query never reads
observations. `position` is the token's place within its step: (step, position) orders a rollout's tokens."""


def tool_calls_of(steps: str) -> str:
    """SELECT of the tool calls of a table of steps."""
    return f'SELECT trajectory_id, unnest(range(len(tokens))), "index", unnest(tokens) FROM {steps}'


def insertion(kind: str) -> str:
    """INSERT of the table `incoming`, and of what is derived from it; rows whose keys are there already stay."""
    insert = f'INSERT INTO "{kind}" BY NAME SELECT * FROM incoming ON CONFLICT DO NOTHING'
    if kind != "step":
        return insert
    return f"""
        WITH fresh AS ({insert} RETURNING trajectory_id, "index", tokens)
        INSERT INTO tool_calls {tool_calls_of("fresh")}"""


CURSOR = """
CREATE TABLE IF NOT EXISTS cursor (segment VARCHAR PRIMARY KEY, "offset" BIGINT NOT NULL, line BIGINT NOT NULL)
"""
"""Bytes and lines of each journal segment that the index holds; written in the transaction that inserts the rows."""


def tables() -> list[str]:
    """DDL of all tables as the code of today wants them."""
    return [*(table_ddl(row_type) for row_type in ROW_TYPES), TOOL_CALLS, CURSOR]


EXPIRE = 2
"""Iterations after which `v_signal` calls an unexplored signal expired."""

VIEWS: dict[str, str] = {
    "v_rollout": """
        -- Scored training rollouts; of several attempts of one (task, k) the first scored one counts, once.
        SELECT * FROM trajectory WHERE purpose = 'train' AND outcome = 'scored'
        QUALIFY row_number() OVER (PARTITION BY run, t, task_id, k ORDER BY attempt, id) = 1""",
    "v_task_score": f"""
        -- s_t(x): one row per run, task and iteration in which the task had a scored training rollout. Rounded, so
        -- that the order in which threads add up can't move a mean across {SUCCESS}.
        SELECT run, task_id, t, round(avg(score), 9) AS score, count(*) AS rollouts,
               count(*) FILTER (score >= {SUCCESS}) AS successes, count(*) FILTER (score < {SUCCESS}) AS failures
        FROM v_rollout GROUP BY ALL""",
    "v_signal": f"""
        -- Signals with their age in iterations, their finished explorations and their status.
        SELECT s.*, coalesce(newest.t - s.t, 0) AS age, coalesce(done.n, 0) AS explorations,
               CASE WHEN explorations > 0 THEN 'explored' WHEN age > {EXPIRE} THEN 'expired' ELSE 'open' END AS status
        FROM signal s
        LEFT JOIN (SELECT run, max(t) AS t FROM phase WHERE name = 'train' GROUP BY run) newest USING (run)
        LEFT JOIN (SELECT signal_id, count(*) AS n FROM exploration WHERE outcome = 'done' GROUP BY signal_id) done
               ON done.signal_id = s.id""",
    "v_lineage": """
        -- Why a task is there: task -> verdict -> candidate -> exploration -> signal; NULLs where a link is absent.
        SELECT k.id AS task_id, k.origin, v.run, v.id AS verdict_id, v.t AS verdict_t, v.repairs,
               c.id AS candidate_id, e.id AS exploration_id, e.t AS exploration_t, e.model,
               s.id AS signal_id, s.kind AS signal_kind, s.t AS signal_t, s.task_id AS signal_task_id,
               s.pattern AS signal_pattern, s.evidence AS signal_evidence
        FROM task k
        LEFT JOIN verdict v ON v.task_id = k.id AND v.adopt
        LEFT JOIN candidate c ON c.id = v.candidate_id
        LEFT JOIN exploration e ON e.id = c.exploration_id
        LEFT JOIN signal s ON s.id = e.signal_id""",
    "v_membership": """
        -- Which snapshots hold a task, and at which place (0-based).
        SELECT run, t, id AS snapshot_id, unnest(task_ids) AS task_id,
               generate_subscripts(task_ids, 1) - 1 AS "position"
        FROM snapshot""",
    "v_mix": """
        -- How each task of each snapshot is sampled: its part of D, its place in the pass-rate band, its probability.
        SELECT run, t, unnest(task_ids) AS task_id, unnest((mix -> '$.part')::VARCHAR[]) AS part,
               unnest((mix -> '$.band')::VARCHAR[]) AS band, unnest((mix -> '$.p')::DOUBLE[]) AS p
        FROM snapshot WHERE mix IS NOT NULL""",
    "v_curve": """
        -- The curves of a run: held-out scores and figures, one row a round and name.
        SELECT run, t AS round, suite AS name, value FROM score WHERE slice = 'all' AND metric = 'accuracy'
        UNION ALL SELECT run, t AS round, name, value FROM figure""",
    "v_spent": """
        -- What each iteration took: seconds of its phases, tokens of all its rollouts, US dollars of its explorations.
        SELECT run, t, coalesce(seconds, 0) AS seconds, coalesce(tokens, 0)::BIGINT AS tokens,
               coalesce(dollars, 0) AS dollars
        FROM (SELECT run, t, sum(seconds) AS seconds FROM phase GROUP BY ALL)
        FULL JOIN (SELECT run, t, sum(prompt_tokens + completion_tokens) AS tokens FROM trajectory GROUP BY ALL)
             USING (run, t)
        FULL JOIN (SELECT run, t, sum(cost) AS dollars FROM exploration GROUP BY ALL) USING (run, t)""",
    "v_pending": """
        -- Tasks that were adopted but are in no snapshot of the run yet, and were not withdrawn.
        SELECT v.run, v.t, v.task_id, v.id AS verdict_id, v.candidate_id
        FROM verdict v
        ANTI JOIN v_membership m ON m.run = v.run AND m.task_id = v.task_id
        ANTI JOIN withdrawal w ON w.run = v.run AND w.task_id = v.task_id
        WHERE v.adopt""",
    "v_funnel": """
        -- Per run and iteration, what became of the candidates, by reason.
        SELECT run, t, adopt, reason, count(*) AS n FROM verdict GROUP BY ALL""",
    "v_refined": """
        -- Samples of refined data sets, each with its last attempt, and the calls, tokens and money it took in all.
        SELECT r.*, coalesce(said.calls, 0) AS calls, coalesce(said.tokens, 0) AS tokens, coalesce(said.cost, 0) AS cost
        FROM (SELECT * FROM refined
              QUALIFY row_number() OVER (PARTITION BY job, sample ORDER BY attempt DESC) = 1) r
        LEFT JOIN (SELECT job, sample, count(*) AS calls, sum(prompt_tokens + completion_tokens)::BIGINT AS tokens,
                          sum(cost) AS cost FROM remark GROUP BY ALL) said USING (job, sample)""",
    "v_judged": """
        -- Judgements of the two responses side by side: which of the two scored higher, the one that was shown first?
        SELECT job, sample, response, iteration, part,
               CASE WHEN part = 1 THEN "old" ELSE "new" END AS first,
               CASE WHEN part = 1 THEN "new" ELSE "old" END AS second
        FROM (SELECT *, (scores ->> '$.old')::DOUBLE AS "old", (scores ->> '$.new')::DOUBLE AS "new"
              FROM remark WHERE role = 'judge')
        WHERE "old" IS NOT NULL AND "new" IS NOT NULL""",
    "v_committee": """
        -- A candidate that was judged: the votes of each stage, whether the strong judges disagreed, and the cost.
        SELECT run, candidate_id, max(t) AS t,
               bool_and(passes) FILTER (stage = 'cheap') AS cheap,
               count(*) FILTER (stage = 'strong') AS votes,
               count(*) FILTER (stage = 'strong' AND passes) AS "for",
               count(*) FILTER (adopt IS NULL) AS unreadable,
               "for" BETWEEN 1 AND votes - 1 AS split,
               sum(prompt_tokens + completion_tokens)::BIGINT AS tokens, sum(cost) AS cost, sum(seconds) AS seconds
        FROM vote GROUP BY run, candidate_id""",
    "v_adversary": """
        -- A valid task of adversarial exploration, how much of it the policy solved when it first met it, and whether
        -- it counts: solved in 20 to 50 % of the rollouts. NULLs until then.
        SELECT e.run, e.t, v.task_id, e.guide ->> '$.about' AS about, s.t AS played_t,
               s.successes / s.rollouts AS solved, solved BETWEEN 0.2 AND 0.5 AS counts
        FROM exploration e
        JOIN candidate c ON c.exploration_id = e.id
        JOIN verdict v ON v.candidate_id = c.id AND v.adopt
        LEFT JOIN (SELECT * FROM v_task_score
                   QUALIFY row_number() OVER (PARTITION BY run, task_id ORDER BY t) = 1) s
               ON s.run = e.run AND s.task_id = v.task_id
        WHERE e.guide ->> '$.mode' = 'adversarial'""",
}
"""{name: SELECT}; a comment in each says what its rows are."""


def views() -> list[str]:
    return [f"CREATE OR REPLACE VIEW {name} AS {select}" for name, select in VIEWS.items()]
