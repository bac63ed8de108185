"""`coevolve refined --html`: a refining job on one self-contained page."""

from __future__ import annotations

from typing import Any

from coevolve import damage
from coevolve.page import render
from store.rows import Json

Data = dict[str, Any]


def page(data: dict[str, Json]) -> str:
    """The HTML of a summary (coevolve/refined.py)."""
    shown = charts(data)
    lost = damage.remark(data["damaged"])
    return render("refined.html", {"job": data, "charts": shown, "damaged": lost, "stamp": ""}, charts=shown)


def charts(data: dict[str, Json]) -> dict[str, Data]:
    """As in coevolve/figures.py."""
    tokens, wins = data["tokens"], data["first_wins"]
    measures = ["p10", "p50", "p90", "mean"]
    lengths = [{"name": when, "values": [tokens[when][each] for each in measures]} for when in ("before", "after")]
    known = tokens["before"]["mean"] is not None
    return {
        "outcomes": _bars(data["outcomes"], "samples"),
        "rounds": _bars(data["rounds"], "responses", "iterations"),
        "stops": _bars(data["stops"], "responses", lying=True),
        "tokens": {
            **{"kind": "bars", "labels": measures, "axis": "", "unit": "tokens"},
            "series": lengths if known else [],
        },
        "positions": _bars(wins if any(wins.values()) else {}, "comparisons"),
        "advice": _bars({f"{verb} {thing}".strip(): n for verb, thing, n in data["advice"]}, "advice", lying=True),
        "roles": _bars(
            {role["role"]: role["prompt_tokens"] + role["completion_tokens"] for role in data["roles"]}, "tokens"
        ),
    }


def _bars(counts: dict[str, Any], unit: str, axis: str = "", *, lying: bool = False) -> Data:
    series = [{"name": unit, "values": list(counts.values())}] if counts else []
    return {"kind": "bars", "labels": list(counts), "axis": axis, "unit": unit, "lying": lying, "series": series}
