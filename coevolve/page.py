"""Self-contained HTML pages: no file beside them, nothing from the network, and what is shown stays inert.

Three walls keep stored text (a policy may write any) from acting: Jinja2 escapes every value, control characters are
written out, and the page's Content-Security-Policy runs only the scripts of this package, by their hash, and lets
nothing be loaded from anywhere.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coevolve import show
from store.errors import UsageError

if TYPE_CHECKING:
    from jinja2 import Environment

FOLDER = Path(__file__).parent / "pages"
CHARTS = ("chart.umd.min.js", "charts.js")
"""Chart.js 4.6.1 (MIT, 205 KiB; chart.LICENSE.md), and what draws our data with it."""


def render(template: str, data: dict[str, Any], *, charts: Any = None, live: bool = False) -> str:
    """The page of `pages/TEMPLATE`; `charts` is the data that charts.js draws, `live` reloads when there is news."""
    scripts = [
        _asset(name) for name in (*(CHARTS if charts is not None else ()), "page.js", *(["live.js"] if live else []))
    ]
    return (
        _environment()
        .get_template(template)
        .render(
            **data,
            style=_asset("style.css"),
            scripts=scripts,
            policy=_policy(scripts, live=live),
            charts_json=_embedded(charts or {}),
        )
    )


def write(path: Path, page: str, *, option: str) -> tuple[dict[str, Any], str]:
    """Write by rename; {"file", "bytes"}, and the same in words. UsageError names the option if `path` is a folder."""
    if path.is_dir():
        raise UsageError(f"{option}: {path} is a folder; name a file")
    data = page.encode(errors="replace")
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_bytes(data)
    draft.replace(path)
    words = f"{path} ({len(data) / 1e6:.1f} MB); open it in any browser"
    return {"file": str(path), "bytes": len(data)}, words


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        finalize=_inert,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"number": number, "moment": moment, "pretty": pretty, "cut": cut, "counted": counted}
    return made


@cache
def _asset(name: str) -> str:
    return (FOLDER / name).read_text("utf-8")


def _policy(scripts: list[str], *, live: bool) -> str:
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(each.encode()).digest()).decode()}'" for each in scripts
    )
    rules = [
        "default-src 'none'",
        f"script-src {hashes}",
        "style-src 'unsafe-inline'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        *(["connect-src 'self'"] if live else []),
    ]
    return "; ".join(rules)


def _inert(value: Any) -> Any:
    """A value for the page: control and invisible characters of a text are written out; lines and tabs stay."""
    if value is None:
        return ""
    if type(value) is str:
        return "".join(c if c.isprintable() or c in "\n\t" else show.inert(c) for c in value)
    return value


def _embedded(value: Any) -> str:
    """JSON that can end no script element. Not a number -> null."""
    text = json.dumps(_plain(value), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return show.inert(value) if isinstance(value, str) else value


def number(value: Any) -> str:
    """Figures for people: 1,234,567; 0.123; a blank for none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "" if value is None else str(value)
    if isinstance(value, int) or (abs(value) >= 1000 and math.isfinite(value)):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def moment(seconds: float) -> str:
    """A Unix time in this machine's zone."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def pretty(value: Any) -> str:
    """A text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1, default=str)


def counted(count: float, noun: str) -> str:
    """`1 step`, `1,200 steps`."""
    return f"{number(count)} {noun}{'' if count == 1 else 's'}"


def cut(text: str, limit: int = 4000) -> str:
    return text if len(text) <= limit else f"{text[:limit]} ... ({len(text)} characters in all)"
