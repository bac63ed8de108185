"""Sampling: the right tokens with the right log-probabilities, whatever shares the batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import MistralConfig, MistralForCausalLM

from tests.tiny_model import write_random_model
from training.model import load_model, merged
from training.sample import Draw, choose, common_prefix, generate, shares, stems

STOPS = frozenset({2})
STEM = tuple(range(40, 70))
PROMPTS = [
    (*STEM, 5, 6, 7),
    (*STEM, 5, 6, 7),
    (*STEM, 9),
    (*STEM[:20], 8, 8),
    (100, 101, 102),
    (110,),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_model(tmp_path_factory.mktemp("model") / "tiny-random-llama")


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    return merged(folder, [], "float32")


@pytest.fixture(scope="module")
def sliding() -> Any:
    """A random-weight model whose layers see 8 tokens back."""
    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=128,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        sliding_window=8,
    )
    return MistralForCausalLM(config).eval()


def draws(prompts: list[tuple[int, ...]], *, temperature: float = 1.0, tokens: int = 24) -> list[Draw]:
    return [
        Draw(prompt=prompt, seed=seed, temperature=temperature, max_tokens=tokens)
        for seed, prompt in enumerate(prompts)
    ]


def plain_logprobs(model: Any, prompt: tuple[int, ...], ids: list[int], temperature: float = 1.0) -> torch.Tensor:
    """[C] log-probabilities of `ids` after `prompt`, by one forward pass without cache or padding."""
    with torch.inference_mode():
        logits = model(torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1].float()
    return torch.log_softmax(logits / temperature, -1).gather(1, torch.tensor(ids)[:, None]).squeeze(1)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_are_those_of_a_plain_forward_pass(model: Any, temperature: float) -> None:
    for draw, drawn in zip(
        draws(PROMPTS), generate(model, draws(PROMPTS, temperature=temperature), STOPS), strict=True
    ):
        expected = plain_logprobs(model, draw.prompt, drawn.ids, temperature)
        torch.testing.assert_close(torch.tensor(drawn.logprobs), expected, atol=1e-4, rtol=1e-4)


def test_logprobs_hold_with_sliding_windows_where_nothing_is_shared(model: Any, sliding: Any) -> None:
    assert shares(model)
    assert not shares(sliding)
    for draw, drawn in zip(draws(PROMPTS), generate(sliding, draws(PROMPTS), frozenset()), strict=True):
        expected = plain_logprobs(sliding, draw.prompt, drawn.ids)
        torch.testing.assert_close(torch.tensor(drawn.logprobs), expected, atol=1e-4, rtol=1e-4)


def test_greedy_is_what_transformers_generates(model: Any, folder: Path) -> None:
    reference = load_model(folder, "float32")
    for prompt, drawn in zip(PROMPTS, generate(model, draws(PROMPTS, temperature=0.0), STOPS), strict=True):
        ids = torch.tensor([prompt])
        output = reference.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=24, do_sample=False
        )
        assert drawn.ids == output[0, len(prompt) :].tolist()


def test_a_completion_depends_on_its_seed_and_not_on_its_neighbours(model: Any) -> None:
    together = generate(model, draws(PROMPTS), STOPS)
    alone = [generate(model, [draw], STOPS)[0] for draw in draws(PROMPTS)]
    assert [drawn.ids for drawn in together] == [drawn.ids for drawn in alone]
    assert together[0].ids != together[1].ids, "same prompt, other seed"


def test_equal_batches_are_equal_bit_for_bit(model: Any) -> None:
    first, second = generate(model, draws(PROMPTS), STOPS), generate(model, draws(PROMPTS), STOPS)
    assert first == second


def test_completions_end_at_a_stop_token_or_at_their_own_limit(model: Any) -> None:
    free = generate(model, draws([PROMPTS[0]] * 8, tokens=30), frozenset())
    stop = free[0].ids[10]
    limited = [
        Draw(prompt=PROMPTS[0], seed=seed, temperature=1.0, max_tokens=limit)
        for seed, limit in enumerate([30, 1, 2, 29, 5, 30, 7, 30])
    ]
    for draw, drawn, whole in zip(limited, generate(model, limited, frozenset({stop})), free, strict=True):
        end = whole.ids.index(stop) + 1 if stop in whole.ids else len(whole.ids)
        assert drawn.ids == whole.ids[: min(end, draw.max_tokens)]
        assert len(drawn.logprobs) == len(drawn.ids)


def test_the_inverse_cdf_draws_each_token_as_often_as_it_is_likely() -> None:
    logits = torch.tensor([2.0, 0.0, 1.0, -9.0, 0.5])
    count = 200_000
    u = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    tokens, logprobs = choose(logits.expand(count, -1), torch.full((count,), 1.5), u)
    expected = torch.softmax(logits / 1.5, 0)
    torch.testing.assert_close(torch.bincount(tokens, minlength=5) / count, expected, atol=1e-5, rtol=0)
    assert (tokens == 3).any(), "unlikely tokens are never cut off"
    torch.testing.assert_close(logprobs, expected.log()[tokens])


def test_the_largest_uniform_number_still_names_a_token() -> None:
    last = torch.tensor([1 - 2**-53], dtype=torch.float64)
    token, _ = choose(torch.zeros(1, 49_152), torch.ones(1), last)
    assert 0 <= token.item() < 49_152


PROMPT_SETS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8).map(tuple), min_size=1, max_size=12)


@given(PROMPT_SETS)
def test_stems_cover_every_prompt_and_leave_each_a_token_of_its_own(prompts: list[tuple[int, ...]]) -> None:
    distinct = sorted(set(prompts))
    families = stems(distinct)
    assert [member for _, members in families for member in members] == distinct
    for stem, members in families:
        for member in members:
            assert member[: len(stem)] == stem
            assert len(stem) < len(member)
        assert len(members) == 1 or 2 * len(stem) >= min(map(len, members))


@given(st.lists(st.integers(0, 2)).map(tuple), st.lists(st.integers(0, 2)).map(tuple))
def test_common_prefix_is_the_longest(one: tuple[int, ...], other: tuple[int, ...]) -> None:
    common = common_prefix(one, other)
    length = len(common)
    assert one[:length] == other[:length] == common
    assert one[length : length + 1] != other[length : length + 1] or length in (len(one), len(other))
