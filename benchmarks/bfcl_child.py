"""The worker of the prototype that BFCL's speed is compared with, as a child of benchmarks/bfcl.py.

Its protocol: one JSON object a line, an operation with one step's calls; `open` answers with the first messages and all
tools, `next` with the next turn's messages. Backends and grading are envs/bfcl/worker's, so that what differs is the
way from the harness to a call. Runs in the venv of bfcl-eval:

    python bfcl_child.py PATH/TO/envs/worker_host.py PATH/TO/envs/bfcl/worker
"""

from __future__ import annotations

import json
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any


def load(host: str, package: str) -> dict[str, Any]:
    spec = spec_from_file_location("worker_host", host)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    handlers: dict[str, Any] = module._load("envs.bfcl.worker", Path(package))
    return handlers


def main(host: str, package: str) -> None:
    verbs = load(host, package)
    catalog = verbs["catalog"]()
    entries = {entry["id"]: entry for entry in catalog["entries"]}
    worlds: dict[int, Any] = {}

    def handle(request: dict[str, Any]) -> Any:
        op = request["op"]
        if op == "open":
            entry = entries[request["id"]]
            opened = verbs["open"](entry["id"], "official", request["reference"])
            worlds[opened["sid"]] = entry
            tools = [tool for name in entry["classes"] for tool in catalog["classes"][name]["tools"]]
            return {**opened, "messages": said(entry, 0), "tools": tools}
        sid = request["sid"]
        if op == "step":
            calls = [{"name": call["name"], "args": call["arguments"]} for call in request["calls"]]
            answer = verbs["act"](sid, calls)
            return {"obs": [text for text, _ in answer["observations"]], "done": answer["done"]}
        if op == "next":
            turn = verbs["turn"](sid)["turn"]
            return {"messages": said(worlds[sid], turn), "turn": turn}
        if op == "evaluate":
            return {"valid": verbs["evaluate"](sid)["official"]}
        return verbs[op](sid) or {}

    out, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        out.write(json.dumps(handle(json.loads(line))) + "\n")
        out.flush()


def said(entry: Any, turn: int) -> list[Any]:
    return [{"role": "user", "content": text} for text in entry["turns"][turn : turn + 1]]


if __name__ == "__main__":
    main(*sys.argv[1:])
