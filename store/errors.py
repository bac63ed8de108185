"""The root of all errors that are reported as one line; `envs/errors.py` draws the tree of failures."""

from __future__ import annotations


class CoevolveError(Exception):
    """Something failed; the message is one clear line. The command line exits with 1."""


class UsageError(CoevolveError):
    """Bad input: the message names the field, its value and the fix. Exit code 2, nothing changed."""


class StoreError(CoevolveError):
    """The store is damaged or out of reach; the message says what to run."""


class RowRefused(StoreError):
    """A row holds what no store can; nothing of its batch was written, and the same rows will never be taken."""
