"""Commands that the documentation names exist, links and anchors lead somewhere, and settings it names are settings.

Every page is looked at: README.md, CONTRIBUTING.md and all of docs/, without being listed here.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from importlib.util import find_spec
from pathlib import Path

import click
import pytest

from coevolve.cli import main
from coevolve.config import load_settings, parse_settings

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PACKAGES = ("benchmarks", "configs", "coevolve", "envs", "evals", "graphs", "scripts", "store", "tests", "training")


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    titles = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def commands() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        for block in blocks(page, "sh"):
            for line in block.splitlines():
                parts = [part.strip() for part in line.split("&&")]
                found += [(page.name, part) for part in parts if part.startswith("coevolve ")]
    return found


@pytest.mark.parametrize(("page", "line"), commands())
def test_a_command_parses(page: str, line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    command: click.Command = main
    while isinstance(command, click.Group):
        command = command.commands[words.pop(0)]
    given = command.make_context("coevolve", words).params
    load_settings(None, given.get("overrides", ()), {})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_command_in_the_text_exists_with_its_flags(page: Path) -> None:
    for line in re.findall(r"`coevolve ([a-z][^`]*)`", prose(page)):
        words = shlex.split(line)
        command: click.Command = main
        while isinstance(command, click.Group) and words:
            assert words[0] in command.commands, line
            command = command.commands[words.pop(0)]
        known = {flag for parameter in command.params for flag in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known, line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_modules_and_make_targets_exist(page: Path) -> None:
    text = page.read_text()
    for module in re.findall(r"python -m ((?:benchmarks|scripts|training)[\w.]*)", text):
        assert find_spec(module), module
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    shell = "".join(blocks(page, "sh"))
    assert {*re.findall(r"`make ([a-z]+)", text), *re.findall(r"^make ([a-z]+)", shell, re.MULTILINE)} <= {*targets}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", prose(page)):
        place = page.parent / target if target else page
        assert place.exists(), target
        assert not anchor or anchor in anchors(place), f"{target}#{anchor}"


def test_pages_that_the_code_names_exist() -> None:
    for folder in PACKAGES:
        for file in (ROOT / folder).rglob("*"):
            if file.suffix in {".py", ".toml", ".sh", ".md", ".yaml"}:
                for page in re.findall(r"docs/[\w/-]+\.md", file.read_text()):
                    assert (ROOT / page).exists(), f"{file}: {page}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_settings_are_settings(page: Path) -> None:
    for block in blocks(page, "toml"):
        parse_settings(tomllib.loads(block), page.name)


def test_the_index_has_every_page() -> None:
    listed = re.findall(r"^\| \[[^]]+\]\(([^)]+)\) \|", (ROOT / "docs/README.md").read_text(), re.MULTILINE)
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert len(listed) == len(set(listed))
    assert set(listed) == pages - {"README.md"}
