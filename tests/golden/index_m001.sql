-- The tables as m001 first made them. Never edited: migrations are tested from here.
CREATE TABLE IF NOT EXISTS "run" ("id" VARCHAR NOT NULL, "created_at" DOUBLE NOT NULL, "seed" BIGINT NOT NULL, "env" VARCHAR NOT NULL, "policy" VARCHAR NOT NULL, "config" JSON, "versions" JSON, PRIMARY KEY ("id"));
CREATE TABLE IF NOT EXISTS "task" ("id" VARCHAR NOT NULL, "env" VARCHAR NOT NULL, "env_version" VARCHAR NOT NULL, "world" VARCHAR NOT NULL, "split" VARCHAR NOT NULL, "user_turns" VARCHAR[] NOT NULL, "tools" VARCHAR[] NOT NULL, "reference" JSON, "expected" JSON, "structure" VARCHAR NOT NULL, "difficulty" DOUBLE NOT NULL, "origin" VARCHAR NOT NULL, PRIMARY KEY ("id"));
CREATE TABLE IF NOT EXISTS "snapshot" ("id" VARCHAR NOT NULL, "run" VARCHAR NOT NULL, "t" BIGINT NOT NULL, "task_ids" VARCHAR[] NOT NULL, "created_at" DOUBLE NOT NULL, PRIMARY KEY ("run", "t"));
CREATE TABLE IF NOT EXISTS "trajectory" ("id" VARCHAR NOT NULL, "run" VARCHAR NOT NULL, "t" BIGINT NOT NULL, "purpose" VARCHAR NOT NULL, "env" VARCHAR NOT NULL, "world" VARCHAR NOT NULL, "task_id" VARCHAR, "suite" VARCHAR, "k" BIGINT NOT NULL, "attempt" BIGINT NOT NULL, "policy" VARCHAR NOT NULL, "policy_version" BIGINT NOT NULL, "seed" BIGINT NOT NULL, "outcome" VARCHAR NOT NULL, "score" DOUBLE, "violation" VARCHAR, "error" VARCHAR, "steps" BIGINT NOT NULL, "prompt_tokens" BIGINT NOT NULL, "completion_tokens" BIGINT NOT NULL, "seconds" DOUBLE NOT NULL, "created_at" DOUBLE NOT NULL, PRIMARY KEY ("id"));
CREATE TABLE IF NOT EXISTS "step" ("trajectory_id" VARCHAR NOT NULL, "index" BIGINT NOT NULL, "action" VARCHAR NOT NULL, "observation" VARCHAR NOT NULL, "tokens" VARCHAR[] NOT NULL, "failed" BOOLEAN NOT NULL, "prompt_ids" BIGINT[], "completion_ids" BIGINT[], "logprobs" DOUBLE[], "seconds" DOUBLE NOT NULL, PRIMARY KEY ("trajectory_id", "index"));
CREATE TABLE IF NOT EXISTS "signal" ("id" VARCHAR NOT NULL, "run" VARCHAR NOT NULL, "t" BIGINT NOT NULL, "kind" VARCHAR NOT NULL, "task_id" VARCHAR, "pattern" VARCHAR[], "evidence" VARCHAR[] NOT NULL, "stats" JSON, PRIMARY KEY ("id"));
CREATE TABLE IF NOT EXISTS "exploration" ("id" VARCHAR NOT NULL, "run" VARCHAR NOT NULL, "t" BIGINT NOT NULL, "signal_id" VARCHAR, "index" BIGINT NOT NULL, "world" VARCHAR NOT NULL, "model" VARCHAR NOT NULL, "context" JSON, "trajectory_id" VARCHAR, "outcome" VARCHAR NOT NULL, "error" VARCHAR, "steps" BIGINT NOT NULL, "tokens" BIGINT NOT NULL, "cost" DOUBLE NOT NULL, "seconds" DOUBLE NOT NULL, PRIMARY KEY ("id"));
CREATE TABLE IF NOT EXISTS "candidate" ("id" VARCHAR NOT NULL, "exploration_id" VARCHAR NOT NULL, "run" VARCHAR NOT NULL, "t" BIGINT NOT NULL, "world" VARCHAR NOT NULL, "user_turns" VARCHAR[] NOT NULL, "tools" VARCHAR[] NOT NULL, "reference" JSON, "index" BIGINT NOT NULL, PRIMARY KEY ("id"));
CREATE TABLE IF NOT EXISTS "verdict" ("id" VARCHAR NOT NULL, "candidate_id" VARCHAR NOT NULL, "run" VARCHAR NOT NULL, "t" BIGINT NOT NULL, "adopt" BOOLEAN NOT NULL, "reason" VARCHAR NOT NULL, "detail" VARCHAR NOT NULL, "task_id" VARCHAR, "repairs" BIGINT NOT NULL, "seconds" DOUBLE NOT NULL, PRIMARY KEY ("id"));
CREATE TABLE IF NOT EXISTS "withdrawal" ("run" VARCHAR NOT NULL, "task_id" VARCHAR NOT NULL, "t" BIGINT NOT NULL, "reason" VARCHAR NOT NULL, PRIMARY KEY ("run", "task_id"));
CREATE TABLE IF NOT EXISTS "score" ("run" VARCHAR NOT NULL, "t" BIGINT NOT NULL, "suite" VARCHAR NOT NULL, "slice" VARCHAR NOT NULL, "metric" VARCHAR NOT NULL, "n" BIGINT NOT NULL, "value" DOUBLE NOT NULL, "low" DOUBLE NOT NULL, "high" DOUBLE NOT NULL, PRIMARY KEY ("run", "t", "suite", "slice", "metric"));
CREATE TABLE IF NOT EXISTS "phase" ("run" VARCHAR NOT NULL, "t" BIGINT NOT NULL, "name" VARCHAR NOT NULL, "finished_at" DOUBLE NOT NULL, "seconds" DOUBLE NOT NULL, "counts" JSON, PRIMARY KEY ("run", "t", "name"));
CREATE TABLE IF NOT EXISTS tool_calls (
    trajectory_id VARCHAR NOT NULL,
    "position" BIGINT NOT NULL,
    step BIGINT NOT NULL,
    token VARCHAR NOT NULL);
CREATE TABLE IF NOT EXISTS cursor (segment VARCHAR PRIMARY KEY, "offset" BIGINT NOT NULL, line BIGINT NOT NULL);
CREATE TABLE migration (version BIGINT PRIMARY KEY, name VARCHAR NOT NULL);
INSERT INTO migration VALUES (1, 'm001_tables');
