"""A judge distilled from the committee's votes: logistic regression over hashed words of a task.

    examples  votes of the strong judges -> one example a candidate: what was shown, whether the majority passed it
    fit       examples -> RewardModel, calibrated by Platt scaling on predictions for examples that it was not fitted to
    RewardModel(shown) -> probability that the committee would adopt

It takes the first stage only where it is of use: out of sample it agrees with the committee more often than the guess
that always says the commoner answer (`Report.useful`). It is made again whenever there are more votes.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from store.rows import Json, Vote

BUCKETS = 2048
MIN_EXAMPLES = 40
"""Fewer candidates with votes, or fewer than `FOLDS` of either answer, are not fitted to."""
FOLDS = 5
L2 = 1e-2
BINS = 10
"""Of the expected calibration error."""

_WORD = re.compile(r"[A-Za-z_]+|\d+|[^\w\s]")
Features = Mapping[int, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Example:
    shown: Json
    """`store.rows.Vote.shown`."""
    passed: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """Of predictions for examples that the model was not fitted to."""

    examples: int
    adopted: int
    agreement: float
    """Share of examples on which it says what the committee said."""
    base_rate: float
    """The same for the guess that always says the commoner answer."""
    brier: float
    """Mean squared error of the probability."""
    ece: float
    """Expected calibration error: |probability - share adopted|, mean over `BINS` equal bins."""

    @property
    def useful(self) -> bool:
        return self.agreement > self.base_rate


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardModel:
    """Implements envs.protocols.Screen."""

    weights: Mapping[int, float]
    bias: float
    report: Report

    def __call__(self, shown: Json) -> float:
        found = features(shown)
        return _sigmoid(self.bias + sum(self.weights.get(at, 0.0) * value for at, value in found.items()))


def examples(votes: Sequence[Vote]) -> list[Example]:
    """One a candidate that the committee voted on, in the order of what was shown: the run's name has no part in it."""
    by_candidate: dict[str, list[Vote]] = {}
    for vote in votes:
        if vote.stage == "strong":
            by_candidate.setdefault(vote.candidate_id, []).append(vote)
    found = [
        Example(shown=group[0].shown, passed=sum(vote.passes for vote in group) * 2 > len(group))
        for group in by_candidate.values()
    ]
    return sorted(found, key=lambda example: json.dumps(example.shown, sort_keys=True))


def fit(given: Sequence[Example]) -> RewardModel | None:
    """None where there is too little to learn from. Equal examples give an equal model."""
    passed = sum(example.passed for example in given)
    if len(given) < MIN_EXAMPLES or min(passed, len(given) - passed) < FOLDS:
        return None
    rows = [features(example.shown) for example in given]
    labels = [float(example.passed) for example in given]
    held_out = _cross_fitted(rows, labels)
    slope, shift = _platt(held_out, labels)
    weights, bias = _logistic(rows, labels, buckets=BUCKETS, l2=L2)
    calibrated = [_sigmoid(slope * logit + shift) for logit in held_out]
    return RewardModel(
        weights={at: slope * weight for at, weight in enumerate(weights) if weight},
        bias=slope * bias + shift,
        report=_report(calibrated, labels),
    )


def _platt(logits: Sequence[float], labels: Sequence[float]) -> tuple[float, float]:
    """(slope, shift) to calibrated logits, with the smoothed targets of J. Platt, 1999. Where logits tell nothing, or
    the contrary, what remains is the share that was adopted."""
    adopted = sum(labels)
    high, low = (adopted + 1) / (adopted + 2), 1 / (len(labels) - adopted + 2)
    targets = [high if label else low for label in labels]
    (slope,), shift = _logistic([{0: logit} for logit in logits], targets, buckets=1, l2=1e-4)
    return (slope, shift) if slope > 0 else (0.0, math.log(adopted / (len(labels) - adopted)))


def features(shown: Json) -> dict[int, float]:
    """{bucket: value}: hashed words of question and reference of unit length, and figures of its place in the set."""
    question, reference = " ".join(shown["user_turns"]), shown["reference"]
    solution = reference if isinstance(reference, str) else json.dumps(reference, sort_keys=True)
    found: dict[int, float] = {}
    for kind, text in (("q", question.lower()), ("s", solution.upper()), ("w", str(shown["world"]))):
        for word in set(_WORD.findall(text)):
            at = zlib.crc32(f"{kind}:{word}".encode()) % (BUCKETS - 4)
            found[at] = found.get(at, 0.0) + 1.0
    length = math.sqrt(sum(value * value for value in found.values())) or 1.0
    found = {at: value / length for at, value in found.items()}
    figures = (
        shown["difficulty"] / 4,
        (shown["difficulty"] - shown["set_mean"]) / 4,
        math.log1p(shown["alike"]) / 3,
        math.log1p(len(question)) / 5,
    )
    return found | {BUCKETS - 4 + at: float(value) for at, value in enumerate(figures)}


def _cross_fitted(rows: Sequence[Features], labels: Sequence[float]) -> list[float]:
    """A logit for each example, of a model that was fitted without it. Folds take turns within each answer."""
    folds, seen = [0] * len(rows), {0.0: 0, 1.0: 0}
    for at, label in enumerate(labels):
        folds[at], seen[label] = seen[label] % FOLDS, seen[label] + 1
    logits = [0.0] * len(rows)
    for fold in range(FOLDS):
        inside = [at for at, of in enumerate(folds) if of != fold]
        weights, bias = _logistic([rows[at] for at in inside], [labels[at] for at in inside], buckets=BUCKETS, l2=L2)
        for at, of in enumerate(folds):
            if of == fold:
                logits[at] = bias + sum(weights[i] * value for i, value in rows[at].items())
    return logits


def _logistic(
    rows: Sequence[Features], labels: Sequence[float], *, buckets: int, l2: float
) -> tuple[list[float], float]:
    """(weights [buckets], bias) of least mean log loss + l2/2 |weights|^2, by L-BFGS in float64."""
    import torch

    x = torch.zeros(len(rows), buckets, dtype=torch.float64)
    for at, row in enumerate(rows):
        for bucket, value in row.items():
            x[at, bucket] = value
    y = torch.tensor(labels, dtype=torch.float64)
    weights = torch.zeros(buckets, dtype=torch.float64, requires_grad=True)
    bias = torch.zeros((), dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([weights, bias], max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(x @ weights + bias, y)
        loss = loss + l2 / 2 * weights.square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimiser.step(closure)  # type: ignore[no-untyped-call]
    return weights.detach().tolist(), float(bias.detach())


def _report(probabilities: Sequence[float], labels: Sequence[float]) -> Report:
    count, adopted = len(labels), int(sum(labels))
    agreed = sum((p >= 0.5) == (label > 0.5) for p, label in zip(probabilities, labels, strict=True))
    bins: dict[int, list[tuple[float, float]]] = {}
    for p, label in zip(probabilities, labels, strict=True):
        bins.setdefault(min(int(p * BINS), BINS - 1), []).append((p, label))
    off = sum(abs(sum(p for p, _ in each) - sum(label for _, label in each)) for each in bins.values())
    return Report(
        examples=count,
        adopted=adopted,
        agreement=agreed / count,
        base_rate=max(adopted, count - adopted) / count,
        brier=sum((p - label) ** 2 for p, label in zip(probabilities, labels, strict=True)) / count,
        ece=off / count,
    )


def _sigmoid(logit: float) -> float:
    return 1 / (1 + math.exp(-logit)) if logit > -700 else 0.0
