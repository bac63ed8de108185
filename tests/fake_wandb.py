"""Stands for the package `wandb` where it is imported: takes what accelerate's tracker gives it, or fails as told.

fake = fake_wandb(tmp_path, monkeypatch)
fake.offline_only = True
"""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@dataclass
class FakeWandB:
    started: list[dict[str, Any]] = field(default_factory=list)
    """The arguments of each `init`."""
    logged: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    finished: bool = False
    offline_only: bool = False
    """`init` finds no server."""
    broken: bool = False
    """`log` raises."""
    hangs: bool = False
    """`log` does not return."""

    logged_in: bool = False
    held: bool = False

    def login(self, *, prompt: bool) -> bool:
        assert not prompt
        return self.logged_in

    def teardown(self) -> None:
        """The real one lets go of the run that `init` failed to start."""
        self.held = False

    def init(self, **options: Any) -> FakeWandB:
        self.started.append(options)
        if self.held:
            raise RuntimeError("the run is in use")
        self.held = True
        if self.offline_only and options["mode"] != "offline":
            raise ConnectionError("no server")
        return self

    def log(self, values: dict[str, float], step: int) -> None:
        if self.hangs:
            threading.Event().wait(60)
        if self.broken:
            raise ValueError("no such chart")
        self.logged.append((step, values))

    def finish(self) -> None:
        self.finished = True


def fake_wandb(folder: Path, monkeypatch: pytest.MonkeyPatch) -> FakeWandB:
    """Installed for the length of the test: to be imported, and with a version that pip would show."""
    fake, module = FakeWandB(), ModuleType("wandb")
    settings = type("Settings", (), {"model_fields": {"console": None, "init_timeout": None}})
    vars(module).update(init=fake.init, login=fake.login, teardown=fake.teardown, Settings=settings)
    monkeypatch.setitem(sys.modules, "wandb", module)
    (folder / "wandb-9.0.dist-info").mkdir()
    (folder / "wandb-9.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: wandb\nVersion: 9.0\n")
    monkeypatch.syspath_prepend(folder)
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    return fake
