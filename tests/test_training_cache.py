"""What the sampler remembers of one turn for the next: fewer tokens to read, the same completions."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.test_training_sample import PROMPTS, STOPS, draws, plain_logprobs
from tests.tiny_model import write_random_model
from training.cache import Ids, Memory
from training.model import merged
from training.sample import Drawn, generate

SAYS = [(20, 21), (22,), (23, 24, 25), (26,), (27, 28), (29, 30, 31, 32)]
"""What each conversation is told after a completion."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return merged(write_random_model(tmp_path_factory.mktemp("model") / "tiny-random-llama"), [], "float32")


def talk(model: Any, memory: Memory | None, turns: int = 3) -> list[tuple[list[Ids], list[Drawn]]]:
    """(prompts, completions) of each turn."""
    prompts, spoken = list(PROMPTS), []
    for _ in range(turns):
        drawn = generate(model, draws(prompts), STOPS, memory)
        spoken.append((prompts, drawn))
        prompts = [(*prompt, *one.ids, *says) for prompt, one, says in zip(prompts, drawn, SAYS, strict=True)]
    return spoken


def tokens_read(model: Any, monkeypatch: pytest.MonkeyPatch, memory: Memory | None) -> int:
    """Prompt tokens of the second turn that pass through the model."""
    ((prompts, first), _) = talk(model, memory, turns=2)
    following = [(*prompt, *one.ids, *says) for prompt, one, says in zip(prompts, first, SAYS, strict=True)]
    read: list[int] = []
    forward = model.forward

    def counted(**given: Any) -> Any:
        read.append(given["input_ids"].numel())
        return forward(**given)

    monkeypatch.setattr(model, "forward", counted)
    generate(model, draws(following, tokens=1), STOPS, memory)
    monkeypatch.undo()
    return sum(read)


def test_with_a_memory_all_turns_are_the_same(model: Any) -> None:
    for (prompts, with_memory), (_, without) in zip(talk(model, Memory()), talk(model, None), strict=True):
        assert [one.ids for one in with_memory] == [one.ids for one in without]
        for prompt, one in zip(prompts, with_memory, strict=True):
            expected = plain_logprobs(model, prompt, one.ids)
            torch.testing.assert_close(torch.tensor(one.logprobs), expected, atol=1e-4, rtol=1e-4)


def test_the_next_turn_reads_only_what_is_new(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    new = len(SAYS) * (max(map(len, SAYS)) + 1)
    assert tokens_read(model, monkeypatch, Memory()) == new, "the last token of a completion is sampled, never read"
    assert tokens_read(model, monkeypatch, None) > 2 * new


def test_a_full_memory_forgets_the_oldest_and_nothing_goes_wrong(model: Any) -> None:
    memory = Memory(limit=200_000)
    spoken = talk(model, memory)
    sequences = [[(*p, *d.ids[:-1]) for p, d in zip(prompts, drawn, strict=True)] for prompts, drawn in spoken]
    known = [sum(memory.find((*ids, 1)) == ids for ids in turn) for turn in sequences]
    assert known == [0, 0, 6], "the shelves of the turns have 86, 129 and 172 kB"
    assert [one.ids for _, turn in spoken for one in turn] == [one.ids for _, turn in talk(model, None) for one in turn]


def test_the_longest_beginning_is_found_and_never_the_whole(model: Any) -> None:
    memory = Memory()
    (_, first), (prompts, second), _ = talk(model, memory)
    for start, one, prompt, two in zip(PROMPTS, first, prompts, second, strict=True):
        assert memory.find((*prompt, *two.ids[:-1], 9)) == (*prompt, *two.ids[:-1])
        assert memory.find(prompt) == (*start, *one.ids[:-1])
        assert memory.find(start) is None
