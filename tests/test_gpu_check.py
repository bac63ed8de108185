"""scripts/gpu_check.sh in its small form: the same path, on a CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_the_check_reports_speed_and_memory_of_five_steps() -> None:
    done = subprocess.run(
        [ROOT / "scripts/gpu_check.sh", "--tiny"],
        env={**os.environ, "PYTHON": sys.executable, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["steps"] == 5
    assert report["tokens"]["sampled"] > 0
    assert min(report["tokens_per_s"].values()) > 0
    assert all(len(seconds) == 5 for seconds in report["seconds"].values())
    assert 0.05 < report["peak_memory_gib"] < 8
    assert "tokens/s, peak memory" in done.stderr
