"""Seconds of `coevolve --help`, against a bare Python start in the same run.

python -m benchmarks.startup [--times 10]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time


def seconds(*command: str) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=10)
    times = parser.parse_args().times
    pairs = [(seconds("-c", "pass"), seconds("-m", "coevolve", "--help")) for _ in range(times)]
    bare, ours = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"bare python {bare:.3f} s, coevolve --help {ours:.3f} s: {ours / bare:.1f}x (goal: under 0.5 s)")


if __name__ == "__main__":
    main()
