#!/bin/sh
# Five GRPO steps on a machine without a network that has torch, transformers and peft: scripts/gpu_check.sh [WHEELS] [--tiny]
# WHEELS is a folder of wheels of what it lacks (docs/hardware.md says how to fill it). JSON on stdout, a table on stderr.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
if [ $# -gt 0 ] && [ -d "$1" ]; then
    site=$(mktemp -d)
    trap 'rm -rf "$site"' EXIT
    "$python" -m pip install -q --no-index --no-deps --no-compile --target "$site" "$1"/*.whl >&2
    PYTHONPATH="$site:${PYTHONPATH:-}"
    shift
fi
export PYTHONPATH="$PWD:${PYTHONPATH:-}" HF_HUB_OFFLINE=1
timeout 360 "$python" -m scripts.gpu_check "$@"
