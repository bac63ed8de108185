"""The index's tables, rendered from the row dataclasses, and the views that answer the usual questions.

Columns are declared once, in store/rows.py: this file maps annotations to SQL types. The index holds four tables
more: `tool_calls` (derived, below), `cursor` (how far each journal segment is ingested), `damage` and `migration`.
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

DAMAGE = """
CREATE TABLE IF NOT EXISTS damage ("where" VARCHAR PRIMARY KEY, detail VARCHAR NOT NULL)
"""
"""Lines of the journal that could not be read at ingest, as `segment:line`: who shows data says how much is missing."""


def tables() -> list[str]:
    """DDL of all tables as the code of today wants them."""
    return [*(table_ddl(row_type) for row_type in ROW_TYPES), TOOL_CALLS, CURSOR, DAMAGE]


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
        SELECT k.id AS task_id, k.origin, v.run, v.id AS verdict_id, v.t AS verdict_t, v.repairs, v.edit,
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
        -- A candidate that was judged: the votes of each stage, whether the strong judges disagreed, and the cost. Not
        -- those that compare an editor's words with those of before.
        SELECT run, candidate_id, max(t) AS t,
               bool_and(passes) FILTER (stage = 'cheap') AS cheap,
               count(*) FILTER (stage = 'strong') AS votes,
               count(*) FILTER (stage = 'strong' AND passes) AS "for",
               count(*) FILTER (adopt IS NULL) AS unreadable,
               "for" BETWEEN 1 AND votes - 1 AS split,
               sum(prompt_tokens + completion_tokens)::BIGINT AS tokens, sum(cost) AS cost, sum(seconds) AS seconds
        FROM vote WHERE stage <> 'polish' GROUP BY run, candidate_id""",
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
    "v_pass_rate": """
        -- A task in an iteration: the share of its scored training rollouts that succeeded, and what it was before.
        SELECT s.run, s.task_id, s.t, s.rollouts, s.successes, s.successes / s.rollouts AS pass_rate,
               lag(s.successes / s.rollouts) OVER earlier AS before, s.t - lag(s.t) OVER earlier AS iterations_since,
               k.world, k.origin, k.structure, k.difficulty
        FROM v_task_score s LEFT JOIN task k ON k.id = s.task_id
        WINDOW earlier AS (PARTITION BY s.run, s.task_id ORDER BY s.t)""",
    "v_signal_history": """
        -- A signal and what came of it: explorations, candidates, tasks, and its own task's scores then and later.
        SELECT s.run, s.t, s.id AS signal_id, s.kind, s.task_id, s.pattern, s.status, s.age, s.explorations,
               coalesce(made.candidates, 0) AS candidates, coalesce(made.adopted, 0) AS adopted,
               coalesce(made.admitted, 0) AS admitted,
               any_value(k.score) FILTER (k.t = s.t) AS score_then,
               arg_min(k.score, k.t) FILTER (k.t > s.t) AS score_next,
               arg_max(k.score, k.t) FILTER (k.t > s.t) AS score_last
        FROM v_signal s
        LEFT JOIN (SELECT e.signal_id, count(DISTINCT c.id) AS candidates, count(DISTINCT v.task_id) AS adopted,
                          count(DISTINCT m.task_id) AS admitted
                   FROM exploration e JOIN candidate c ON c.exploration_id = e.id
                   LEFT JOIN verdict v ON v.candidate_id = c.id AND v.adopt
                   LEFT JOIN v_membership m ON m.run = v.run AND m.task_id = v.task_id
                   GROUP BY e.signal_id) made ON made.signal_id = s.id
        LEFT JOIN v_task_score k ON k.run = s.run AND k.task_id = s.task_id
        GROUP BY ALL""",
    "v_task_lineage": """
        -- A task in a run, from the signal that led to it to its newest score. Seed tasks have no signal.
        SELECT held.run, k.id AS task_id, k.world, k.origin, k.difficulty, l.signal_id, l.signal_kind, l.signal_t,
               l.signal_task_id, l.exploration_id, l.candidate_id, l.verdict_id, l.verdict_t, held.first_t,
               w.t AS withdrawn_t,
               arg_min(s.score, s.t) AS score_first, arg_max(s.score, s.t) AS score_last, max(s.t) AS last_t
        FROM (SELECT run, task_id, min(t) AS first_t
              FROM (SELECT run, task_id, t FROM v_membership
                    UNION ALL SELECT run, task_id, NULL FROM verdict WHERE adopt)
              GROUP BY ALL) held
        JOIN task k ON k.id = held.task_id
        LEFT JOIN (SELECT * FROM v_lineage
                   QUALIFY row_number() OVER (PARTITION BY run, task_id ORDER BY verdict_t, verdict_id) = 1) l
               ON l.run = held.run AND l.task_id = held.task_id
        LEFT JOIN withdrawal w ON w.run = held.run AND w.task_id = held.task_id
        LEFT JOIN v_task_score s ON s.run = held.run AND s.task_id = held.task_id
        GROUP BY ALL""",
    "v_cost": """
        -- What a kind of work took in an iteration: wall-clock seconds, tokens, US dollars. Of `eval`, t is the policy
        -- version; `explore` and `validate` of t = 0 have the tokens of seeding too.
        SELECT run, t, work, coalesce(clock.seconds, 0) AS seconds,
               coalesce(clock.seconds / sum(clock.seconds) OVER (PARTITION BY run), 0) AS share,
               coalesce(used.prompt_tokens, 0) AS prompt_tokens,
               coalesce(used.completion_tokens, 0) AS completion_tokens,
               coalesce(paid.cost, 0) AS cost
        FROM (SELECT run, t, split_part(name, ' ', 1) AS work, sum(seconds) AS seconds FROM phase GROUP BY ALL) clock
        FULL JOIN (SELECT run, t, work, sum(prompt_tokens)::BIGINT AS prompt_tokens,
                          sum(completion_tokens)::BIGINT AS completion_tokens
                   FROM (SELECT run, t, purpose AS work, prompt_tokens, completion_tokens FROM trajectory
                         WHERE purpose <> 'validate'
                         UNION ALL
                         SELECT run, t, graph, prompt_tokens, completion_tokens FROM span WHERE graph = 'validate')
                   GROUP BY ALL) used USING (run, t, work)
        FULL JOIN (SELECT run, t, 'explore' AS work, sum(cost) AS cost FROM exploration GROUP BY ALL
                   UNION ALL
                   SELECT run, t, 'validate', sum(cost) FROM span WHERE graph = 'validate' GROUP BY ALL) paid
             USING (run, t, work)""",
    "v_spent": """
        -- What each iteration took in all: seconds, tokens, US dollars.
        SELECT run, t, sum(seconds) AS seconds, sum(prompt_tokens + completion_tokens)::BIGINT AS tokens,
               sum(cost) AS dollars
        FROM v_cost GROUP BY ALL""",
    "v_round": f"""
        -- An iteration: its training rollouts, signals, what exploring them gave, the scores of the version it made.
        SELECT b.run, b.t, d.tasks, b.rollouts, b.score, b.pass_rate,
               coalesce(g.forgetting, 0) AS forgetting, coalesce(g.boundary, 0) AS boundary,
               coalesce(g.rare, 0) AS rare,
               coalesce(e.explorations, 0) AS explorations, coalesce(v.decided, 0) AS decided,
               coalesce(v.adopted, 0) AS adopted, p.admitted, h.scores,
               c.seconds, c.tokens, c.cost
        FROM (SELECT run, t, count(*) AS rollouts, round(avg(score), 9) AS score,
                     count(*) FILTER (score >= {SUCCESS}) / count(*) AS pass_rate FROM v_rollout GROUP BY ALL) b
        LEFT JOIN (SELECT run, t, len(task_ids) AS tasks FROM snapshot) d USING (run, t)
        LEFT JOIN (SELECT run, t, count(*) FILTER (kind = 'forgetting') AS forgetting,
                          count(*) FILTER (kind = 'boundary') AS boundary, count(*) FILTER (kind = 'rare') AS rare
                   FROM signal GROUP BY ALL) g USING (run, t)
        LEFT JOIN (SELECT run, t, count(*) AS explorations FROM exploration
                   WHERE outcome = 'done' AND signal_id IS NOT NULL GROUP BY ALL) e USING (run, t)
        LEFT JOIN (SELECT run, t, count(*) AS decided, count(*) FILTER (adopt) AS adopted FROM verdict GROUP BY ALL) v
             USING (run, t)
        LEFT JOIN (SELECT run, t, (counts ->> '$.admitted')::BIGINT AS admitted FROM phase WHERE name = 'snapshot') p
             USING (run, t)
        LEFT JOIN (SELECT run, t - 1 AS t, map_from_entries(list((suite, value) ORDER BY suite)) AS scores
                   FROM score WHERE slice = 'all' AND metric = 'accuracy' GROUP BY ALL) h USING (run, t)
        LEFT JOIN (SELECT run, t - (work = 'eval')::BIGINT AS t, sum(seconds) AS seconds,
                          sum(prompt_tokens + completion_tokens)::BIGINT AS tokens, sum(cost) AS cost
                   FROM v_cost WHERE work <> 'seed' GROUP BY ALL) c USING (run, t)""",
}
"""{name: SELECT}; a comment in each says what its rows are."""


def views() -> list[str]:
    return [f"CREATE OR REPLACE VIEW {name} AS {select}" for name, select in VIEWS.items()]
