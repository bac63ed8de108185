"""Environments as classes for TRL's `environment_factory`, in TRL's own trainer."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from envs import registry
from envs.appworld.env import AppWorld
from envs.bfcl.env import Bfcl
from envs.protocols import Env
from envs.signature import describe
from envs.trl import OVER, trl_environment
from store.errors import UsageError
from store.rows import Json, Task
from tests.fakes import EchoEnv
from tests.random_sql_model import write

SQL = registry.get("text2sql")


def functions(env: Env, tasks: list[Task]) -> dict[str, Json]:
    """{name: schema} as the chat template is given it, by what TRL takes for tools."""
    from transformers.utils import get_json_schema

    made = trl_environment(env, tasks)
    public = [name for name in vars(made) if not name.startswith("_")]
    return {name: get_json_schema(getattr(made(), name))["function"] for name in public}


def test_an_episode_is_played_by_methods_and_scored_by_execution() -> None:
    first, second = SQL.seed_tasks()[:2]
    environment: Any = trl_environment(SQL, [first, second])()
    assert environment.get_reward() is None
    assert environment.reset(task=first.id, prompt=[]).endswith(first.user_turns[0])
    assert "book" in environment.list_tables()
    assert environment.run_sql(sql="SELECT x") == '{"error":"no such column: x"}'
    assert environment.submit_sql(sql=first.reference) == OVER
    assert environment.submit_sql(sql="SELECT 1") == OVER
    assert (environment.get_reward(), environment.get_reward()) == (1.0, 1.0)
    environment.reset(task=second.id)
    environment.submit_sql(sql=first.reference)
    assert environment.get_reward() == 0.0


def test_an_episode_that_the_model_leaves_is_scored_as_it_stands() -> None:
    environment = trl_environment(SQL, SQL.seed_tasks())()
    environment.reset(task=SQL.seed_tasks()[0].id)
    assert environment.get_reward() == 0.0


@pytest.mark.parametrize("fault", ["lose", "sleep", "crash", "invalid", "lose_start", "sleep_start", "lose_grade"])
def test_what_is_no_score_gives_no_reward(fault: Any) -> None:
    env = EchoEnv()
    task = env.seed_tasks()[0]
    environment: Any = trl_environment(env, [task], deadline_s=0.2)()
    env.faults[task.id] = [fault]
    environment.reset(task=task.id)
    environment.say(word="ping")
    assert environment.get_reward() is None
    environment.reset(task=task.id)
    environment.say(word="ping")
    assert environment.get_reward() == 1.0
    assert all(session.closed for session in env.sessions[1:])  # the first told the tools


def test_a_reset_closes_the_episode_before() -> None:
    env = EchoEnv()
    environment = trl_environment(env, env.seed_tasks())()
    for task in env.seed_tasks():
        environment.reset(task=task.id)
    assert [session.closed for session in env.sessions[-2:]] == [True, False]


def test_it_works_where_an_event_loop_is_running() -> None:
    async def notebook() -> float | None:
        environment: Any = trl_environment(SQL, SQL.seed_tasks())()
        environment.reset(task=SQL.seed_tasks()[0].id)
        environment.submit_sql(sql=SQL.seed_tasks()[0].reference)
        reward: float | None = environment.get_reward()
        return reward

    assert asyncio.run(notebook()) == 1.0


def test_schemas_are_those_of_the_environment() -> None:
    found = functions(SQL, SQL.seed_tasks())
    session = SQL.open(SQL.seed_tasks()[0].world, SQL.seed_tasks()[0], tools=True)
    assert found == {tool["function"]["name"]: as_python(tool["function"]) for tool in session.tools}


def test_all_functions_of_bfcl_are_methods(bfcl: Bfcl) -> None:
    tasks = bfcl.suites()["multi_turn_base"]
    found = functions(bfcl, tasks)
    assert found.pop("reply")["parameters"]["required"] == ["text"]
    offered = {tool["function"]["name"]: tool for task in tasks for tool in bfcl.open(task.world, task).tools}
    assert len(offered) > 100
    assert found == {name: as_python(tool["function"]) for name, tool in offered.items()}


def as_python(function: Json) -> Json:
    """A schema as far as Python's types and docstrings carry it: defaults move into the words."""
    properties = {}
    for name, schema in function["parameters"]["properties"].items():
        words = " ".join(schema["description"].split())
        if "default" in schema:
            words += f" Defaults to {json.dumps(schema['default'])}."
        kept = {key: schema[key] for key in ("type", "items") if key in schema}
        properties[name] = {**kept, "description": words}
    parameters: Json = {"type": "object", "properties": properties}
    if required := [name for name in properties if name in function["parameters"]["required"]]:
        parameters["required"] = required
    words = " ".join(function["description"].split())
    return {"name": function["name"], "description": words, "parameters": parameters}


def test_a_task_of_several_turns_is_replied_to(bfcl: Bfcl) -> None:
    task = bfcl.suites()["multi_turn_base"][0]
    environment: Any = trl_environment(bfcl, [task])()
    said = [environment.reset(task=task.id)]
    for calls in task.reference:
        for call in calls:
            getattr(environment, call["name"])(**call["args"])
        said.append(environment.reply(text="Done."))
    assert said == [*task.user_turns, OVER]
    assert environment.get_reward() == 1.0


@pytest.mark.slow
def test_code_is_run_in_appworld(appworld: AppWorld) -> None:
    task = appworld.suites()["train"][0]
    environment: Any = trl_environment(appworld, [task])()
    assert environment.reset(task=task.id).endswith(task.user_turns[0])
    assert environment.run_python(code="print(6 * 7)") == "42"
    assert environment.run_python(code="apis.supervisor.complete_task()") == OVER
    assert environment.get_reward() == 0.0


def test_an_unknown_task_is_refused() -> None:
    with pytest.raises(UsageError, match="task 'x': it is none of the 108 tasks of this environment class"):
        trl_environment(SQL, SQL.seed_tasks())().reset(task="x")


@pytest.mark.parametrize(("name", "argument"), [("from", "x"), ("a.b", "x"), ("fine", "class"), ("fine", "a-b")])
def test_names_that_python_does_not_take_are_refused(name: str, argument: str) -> None:
    tool = {"function": {"name": name, "description": "", "parameters": {"properties": {argument: {}}}}}
    with pytest.raises(UsageError, match=re.escape(f"tool {name!r}: ")):
        describe(lambda: None, tool)


_words = st.text(max_size=30) | st.sampled_from(["Args: x", "Returns:\n a", "of (choices: none)", "x: y\n  z: w", ""])
_kinds: list[Json] = [
    {"type": "string"},
    {"type": "array", "items": {"type": "integer"}},
    {"type": "array"},
    {"type": "object"},
    {"type": "number"},
    {"type": "boolean"},
    {"type": ["integer", "string"]},
    {"type": "string", "enum": ["a", "b"]},
]


@settings(max_examples=60)
@given(words=_words, about=st.lists(st.tuples(st.sampled_from(_kinds), _words, st.booleans()), max_size=3))
def test_any_description_gives_a_schema_with_all_arguments(words: str, about: list[tuple[Json, str, bool]]) -> None:
    from transformers.utils import get_json_schema

    properties = {f"a{i}": {**kind, "description": said} for i, (kind, said, _) in enumerate(about)}
    needed = [f"a{i}" for i, (_, _, required) in enumerate(about) if required]
    parameters = {"type": "object", "properties": properties, "required": needed}

    def call(self: Any, **arguments: Any) -> None: ...

    describe(call, {"function": {"name": "call", "description": words, "parameters": parameters}})
    found = get_json_schema(call)["function"]["parameters"]
    assert found.get("required", []) == needed
    assert {key: found["properties"][key]["type"] for key in properties} == {
        key: schema["type"] for key, schema in properties.items()
    }


@pytest.mark.slow
def test_trl_trains_a_step_on_rewards_of_execution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A random model whose tokens are whole calls plays; what TRL takes for rewards is what execution gives."""
    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer
    from trl.chat_template_utils import qwen2_5_chat_template

    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    task = SQL.seed_tasks()[0]
    answers = [str(task.reference), "SELECT 1"]
    calls = [json.dumps({"name": "submit_sql", "arguments": {"sql": sql}}) for sql in answers]
    said = [f"<tool_call>\n{call}\n</tool_call>" for call in calls]
    folder = write(tmp_path / "model", said, seed=0, context=8192)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = qwen2_5_chat_template
    seen: list[tuple[Any, float]] = []

    def watch(completions: Any, environments: Any, **_: Any) -> list[float]:
        """Independent of `get_reward`: the first call of each completion, looked up."""
        for completion, environment in zip(completions, environments, strict=True):
            seen.append((completion[0].get("tool_calls"), environment.get_reward()))
        return [0.0] * len(completions)

    trainer = GRPOTrainer(
        model=str(folder),
        processing_class=tokenizer,
        reward_funcs=[watch],
        train_dataset=Dataset.from_list([{"task": task.id}]),
        environment_factory=trl_environment(SQL, [task]),
        args=GRPOConfig(
            output_dir=str(tmp_path / "out"),
            use_cpu=True,
            bf16=False,
            dataloader_pin_memory=False,
            report_to=[],
            save_strategy="no",
            max_steps=1,
            logging_steps=1,
            learning_rate=1e-2,
            num_generations=8,
            per_device_train_batch_size=8,
            max_completion_length=200,
            max_tool_calling_iterations=1,
            seed=1,
        ),
    )
    before = {name: weight.detach().clone() for name, weight in trainer.model.named_parameters()}
    trainer.train()
    rewards = [reward for _, reward in seen]
    first = [calls[0]["function"]["arguments"]["sql"] if calls else None for calls, _ in seen]
    assert rewards == [float(sql == task.reference) for sql in first]
    assert set(rewards) == {0.0, 1.0}
    logged = trainer.state.log_history[0]
    assert logged["rewards/text2sql/mean"] == pytest.approx(sum(rewards) / len(rewards))
    assert (logged["tools/call_frequency"] > 0, logged["tools/failure_frequency"]) == (True, 0)
    assert any(not torch.equal(before[name], weight) for name, weight in trainer.model.named_parameters())
