"""Sampling in this process: the groups of one optimiser step, or of several as one batch.

A batch of twice the size takes much less than twice the time, so with `staleness` s the groups of s + 1 steps are
sampled together, by the weights that the first of them begins with: those of the last are s steps behind.

    sampler   groups of 1 and 2            groups of 3 and 4
    trainer                     step 1, 2                      step 3, 4        (s = 1)

A run that is killed between the steps of a batch has all of its rollouts, and goes on in its middle.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec.structs import replace

from training.ahead import Filled
from training.groups import Feed


class AtOnce:
    """As `Ahead`, for a sampler that has no time of its own."""

    def __init__(self, feed: Feed, *, groups: int, staleness: int) -> None:
        self.waited = 0.0
        """Seconds in which rollouts were sampled."""
        self._feed, self._groups, self._staleness = feed, groups, staleness
        self._ready: deque[Filled] = deque()
        self._runner = asyncio.Runner()

    def __enter__(self) -> AtOnce:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.close()

    @property
    def wants_weights(self) -> bool:
        """Whether the next groups are still to be sampled."""
        return not self._ready

    @contextmanager
    def idle(self) -> Iterator[None]:
        yield

    def next(self, step: int) -> Filled:
        """The groups for weights that have seen `step` optimiser steps."""
        if not self._ready:
            started = time.monotonic()
            self._fill(step)
            self.waited += time.monotonic() - started
        return self._ready.popleft()

    def _fill(self, step: int) -> None:
        feed, run = self._feed, self._runner.run
        served = feed.tally.served
        feed.tally = replace(feed.tally, served=0)
        if served > self._staleness:  # begun with a larger bound: the rest of that batch is too old
            run(feed.fill(self._groups * served))
            served = 0
        before = feed.tally
        found = run(feed.fill(self._groups * (self._staleness + 1), step - self._staleness))
        parts = [found[at : at + self._groups] for at in range(0, len(found), self._groups)]
        filled = []
        for at, part in enumerate(parts):
            then = replace(before, served=at)
            # What sampling took is told with the first step of the batch.
            filled.append(Filled(groups=part, before=then, after=then if at else feed.tally))
        self._ready.extend(filled[served:] or [Filled(groups=[], before=feed.tally, after=feed.tally)])
