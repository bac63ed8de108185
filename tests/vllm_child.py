"""`python -m tests.vllm_child MODEL HOME`: starts the vLLM server and says so, then waits to be killed."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from training.config import EngineSettings, ModelSettings
from training.serve import Server

if __name__ == "__main__":
    folder, home = map(Path, sys.argv[1:])
    server = Server(run="r", engine=EngineSettings(), model=ModelSettings(dtype="float32"), log=home / "vllm.log")
    server.start(folder)
    time.sleep(600)
