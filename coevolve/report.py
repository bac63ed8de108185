"""`coevolve report`: one self-contained HTML file that tells a run's story, or the page served while it goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coevolve import protected, standing
from coevolve.figures import figures
from coevolve.page import number, render, write
from coevolve.workspace import RunFolder, Workspace
from store.errors import UsageError

STORIES = 2_500_000
"""Characters of tasks told in full; more are left out and counted, so that the file stays well under 5 MB."""

ROUND = {
    "t": "iteration",
    "score": "mean score",
    "pass_rate": "passed, share",
    "decided": "candidates",
    "scores": "held out, %",
    "seconds": "time, s",
    "cost": "models, $",
}
"""What columns of v_round are called on the page, where that isn't their name."""


def report_command(
    *, workspace: str | None, run: str | None, out: str | None, live: bool, port: int, include_protected: bool, **_: Any
) -> tuple[Any, Any]:
    place = Workspace.find(workspace)
    folder = place.run(run)
    if live:
        if out:
            raise UsageError("--out, --live: a file or a server; give one of them")
        from coevolve.live import serve

        serve(place, folder, port, whole=include_protected)
        return {"run": folder.id}, ""
    path = Path(out) if out else folder.path / "report.html"
    licence = protected.licence(place.store, folder.id)
    data, words = write(path, page(place, folder, whole=include_protected), option="--out")
    note = [protected.remark(licence, whole=include_protected)] if licence else []
    return {"run": folder.id, **data, "protected": licence}, "\n".join([words, *note])


def page(place: Workspace, run: RunFolder, *, stamp: str = "", live: bool = False, whole: bool = False) -> str:
    """The report's HTML; with `whole` also the texts that may not be passed on."""
    data = figures(place, run)
    licence = protected.licence(place.store, run.id)
    if licence and not whole:
        data["listed"] = protected.listed(data["listed"])
        data["stories"] = [protected.story(each) for each in data["stories"]]
    shown = _that_fit(data["stories"])
    return render(
        "report.html",
        {
            **data,
            "stories": shown,
            "left_out": len(data["stories"]) - len(shown),
            "stands": standing.told(data["standing"]),
            "tiles": _tiles(data),
            "round_names": ROUND,
            "stamp": stamp,
            "licence": protected.remark(licence, whole=whole) if licence else "",
        },
        charts=data["charts"],
        live=live,
    )


def _that_fit(stories: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As many of the first stories as `STORIES` allows."""
    left, found = STORIES, []
    for story in stories:
        left -= len(str(story))
        if left >= 0:
            found.append(story)
    return found


def _tiles(data: dict[str, Any]) -> list[tuple[str, str]]:
    totals = data["totals"]
    tiles = []
    for series in data["charts"]["scores"]["series"]:
        values = [value for value in series["values"] if value is not None]
        tiles.append(
            (f"{series['name']}: last, and gain since the first", f"{values[-1]:.1f} % ({values[-1] - values[0]:+.1f})")
        )
    tiles += [
        ("tasks in the newest snapshot", number(totals["tasks"])),
        ("rollouts", number(totals["rollouts"])),
        ("of them lost to the machine", number(totals["infra"])),
        ("tokens", number(totals["tokens"])),
        ("of work", standing.lasting(totals["seconds"]).removeprefix("about ")),
    ]
    return [*tiles, ("of model calls", f"${totals['cost']:.2f}")] if totals["cost"] else tiles
