"""What agent code can get at by names that the filter lets through: a walk of its namespace in the real engine."""

from __future__ import annotations

import json

import pytest

from envs.appworld.code import BUILTINS, FRAMES, MODULE_ATTRIBUTES, MODULES, REACHING, refusal
from envs.appworld.env import AppWorld
from tests.appworld_play import WORLD

WALK = """
_load = __import__
_builtins = _load("builtins")
_types = _load("types")
_hidden = set(HIDDEN)
_frames = _load("re").compile(FRAMES)
_wanted = {}
for _module, _names in WANTED.items():
    for _name in _names:
        _wanted[id(getattr(_load(_module, fromlist=["x"]), _name))] = f"{_module}.{_name}"
_todo = [(name, value) for name, value in get_ipython().user_ns.items() if name not in BUILTINS and name[:1] != "_"]
_todo += [(name, value) for name, value in vars(_builtins).items() if name not in BUILTINS and name[:1] != "_"]
_todo += [(name, _load(name, fromlist=["x"])) for name in MODULES]
_todo += [(name, value) for name, value in get_ipython().user_ns.items() if name in ("_dh", "_oh", "_ih")]
_seen, _found, _kept = set(), {}, []
while _todo:
    _path, _value = _todo.pop()
    if id(_value) in _seen or _path.count(".") > 6:
        continue
    _seen.add(id(_value))
    _kept.append(_value)
    if id(_value) in _wanted:
        _found[_wanted[id(_value)]] = _path
    if isinstance(_value, _types.ModuleType) and _value.__name__ in FORBIDDEN:
        _found[_value.__name__] = _path
    if type(_value) is dict:
        _todo += [(f"{_path}[{key!r}]", value) for key, value in _value.items()]
    if type(_value) in (list, tuple):
        _todo += [(f"{_path}[{at}]", value) for at, value in enumerate(_value)]
    for _name in dir(_value):
        if not (_name[:1] == "_" or _name in _hidden or _frames.match(_name)):
            try:
                _todo.append((f"{_path}.{_name}", getattr(_value, _name)))
            except BaseException:
                pass
_builtins.print(_load("json").dumps([len(_seen), _found]))
"""
WANTED = {
    "builtins": ["getattr", "setattr", "eval", "exec", "compile", "open", "__import__", "globals", "vars"],
    "operator": ["attrgetter", "methodcaller"],
    "string": ["Formatter"],
    "typing": ["get_type_hints", "ForwardRef"],
    "functools": ["update_wrapper", "wraps", "singledispatch"],
    "types": ["FunctionType", "CodeType", "MethodType"],
    "time": ["clock_settime", "clock_settime_ns"],
    "pathlib": ["Path", "PosixPath"],
    "appworld.requester": ["Requester"],
}
FORBIDDEN = ["os", "posix", "sys", "builtins", "importlib", "subprocess", "socket", "ctypes", "io", "pickle", "gc"]


def test_nothing_that_leads_out_is_within_reach(appworld: AppWorld) -> None:
    given = {
        "HIDDEN": sorted(MODULE_ATTRIBUTES | REACHING),
        "FRAMES": FRAMES.pattern,
        "BUILTINS": sorted(BUILTINS),
        "MODULES": sorted(MODULES),
        "WANTED": WANTED,
        "FORBIDDEN": FORBIDDEN,
    }
    code = "".join(f"{name} = {value!r}\n" for name, value in given.items()) + WALK
    step = appworld.agents.ask({"verb": "play", "world": WORLD, "blocks": [code]})["steps"][0]
    assert not step["failed"], step["output"]
    objects, found = json.loads(step["output"])
    assert objects > 2000
    assert found == {}


@pytest.mark.parametrize(
    "code",
    [
        "import re\nfor row in [{'a': 1}]:\n    print('{a} of {b[0]}'.format(b=[2], **row), re.sub('a', 'b', 'a'))",
        "match {'kind': 1}:\n    case {'kind': int(), **rest}:\n        print(rest)",
        "from datetime import datetime, timedelta\nprint((datetime.now() - timedelta(days=1)).isoformat())",
        "import time\nprint(time.strftime('%Y'), time.time())",
        "from functools import reduce\nfrom typing import Any\nprint(reduce(max, [1, 2]))",
    ],
)
def test_plain_python_goes_through(code: str) -> None:
    assert refusal(code) is None
