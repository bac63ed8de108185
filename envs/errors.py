"""Failures, typed by the boundary that they crossed.

    CoevolveError                 (store/errors.py) base: one clear line for a person
    |-- UsageError                (store/errors.py) bad input: field, value, fix; the command line exits with 2
    |-- InfraError                the machine, a worker or an endpoint failed: never a score, never a signal
    |   |-- PolicyUnavailable     the policy's endpoint gave no answer
    |   `-- SessionLost           the environment's process died or fell silent and a fresh one did not
    |                             fail again on the same call
    `-- InvalidTask               the task itself is defective; `reason` is one stable word

What the *policy* does wrong is no exception at all: it is an observation, the rollout goes on and is scored.
"""

from __future__ import annotations

from store.errors import CoevolveError


class InfraError(CoevolveError):
    """An infrastructure failure; the rollout becomes an `infra` row."""


class PolicyUnavailable(InfraError):
    """The policy could not be sampled."""


class SessionLost(InfraError):
    """The environment lost the session, and not by the policy's fault."""


class InvalidTask(CoevolveError):
    """The task's reference does not do what a reference must."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail
