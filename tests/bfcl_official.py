"""The package's own executor and checker, for the tests of parity: runs in the venv of bfcl-eval.

One case a line on stdin: {"entry": id, "turns": [[step]]}, a step being a list of calls as Python text; one result a
line on stdout: {"valid": bool, "observations": [text]}. Each case has a process of its own, since the package's
instances, default arguments and module lists are shared by all that runs in one.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import bfcl_eval
from bfcl_eval.constants.executable_backend_config import CLASS_FILE_PATH_MAPPING
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker, multi_turn_irrelevance_checker
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils import execute_multi_turn_func_call

DATA = Path(str(bfcl_eval.__file__)).parent / "data"


def entries() -> dict[str, tuple[Any, Any]]:
    found = {}
    for category in ("base", "miss_func", "miss_param", "long_context"):
        name = f"BFCL_v4_multi_turn_{category}.json"
        answers = [json.loads(line) for line in (DATA / "possible_answer" / name).read_text().splitlines()]
        by_id = {answer["id"]: answer["ground_truth"] for answer in answers}
        for line in (DATA / name).read_text().splitlines():
            entry = json.loads(line)
            found[entry["id"]] = (entry, by_id[entry["id"]])
    return found


def judge(entry: Any, answer: Any, turns: Any) -> dict[str, Any]:
    turns = answer_as_turns(answer) if turns is None else turns
    checked = multi_turn_checker(turns, answer, entry, "multi_turn", "model")
    abstained = multi_turn_irrelevance_checker(turns, answer)
    observations: list[str] = []
    for turn in turns:
        for step in turn:
            observations += execute_multi_turn_func_call(
                step, entry["initial_config"], entry["involved_classes"], "o", "o", "long_context" in entry["id"]
            )[0]
    return {"valid": checked["valid"], "abstained": abstained["valid"], "observations": observations}


def answer_as_turns(answer: Any) -> Any:
    """The answer's own text, each turn one step."""
    return [[turn] if turn else [] for turn in answer]


def main() -> None:
    known = entries()
    for name, module in CLASS_FILE_PATH_MAPPING.items():
        if not name.startswith(("Memory", "Web")):
            __import__(module)
    for line in sys.stdin:
        case = json.loads(line)
        sys.stdout.flush()
        if (child := os.fork()) == 0:
            result = judge(*known[case["entry"]], case["turns"])
            sys.stdout.write(json.dumps(result) + "\n")
            sys.stdout.flush()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            raise SystemExit(f"{case} ended with {status}")


if __name__ == "__main__":
    main()
