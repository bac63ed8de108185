"""Settings of the whole suite: no test reaches the network, and property tests are the same on every machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from envs.appworld.env import AppWorld
    from envs.bfcl.env import Bfcl

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

settings.register_profile(
    "suite", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("suite")


@pytest.fixture(scope="session")
def bfcl() -> Iterator[Bfcl]:
    """The environment over the real package, whose venv is made when it is first asked for."""
    from envs.bfcl.catalog import VENV
    from envs.bfcl.env import builtin

    VENV.install()
    env = builtin("index")
    yield env
    env.close()


@pytest.fixture(scope="session")
def appworld() -> Iterator[AppWorld]:
    """The environment over the real engine and the small world, both made when they are first asked for."""
    from envs.appworld.env import AppWorld
    from envs.appworld.place import Place
    from envs.venvs import envs_dir

    place = Place(envs_dir() / "appworld-mini")
    place.install("mini")
    env = AppWorld(place)
    yield env
    env.close()
