"""Commands that the documentation names exist, links lead somewhere, and settings it names are settings."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest

from coevolve.cli import main
from coevolve.config import parse_settings

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def commands() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        for block in blocks(page, "sh"):
            for line in block.splitlines():
                found += [
                    (page.name, part.strip()) for part in line.split("&&") if part.strip().startswith("coevolve ")
                ]
    return found


@pytest.mark.parametrize(("page", "line"), commands())
def test_a_command_parses(page: str, line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    command: click.Command = main
    while isinstance(command, click.Group):
        command = command.commands[words.pop(0)]
    command.make_context("coevolve", words)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_settings_are_settings(page: Path) -> None:
    for block in blocks(page, "toml"):
        parse_settings(tomllib.loads(block), page.name)


def test_the_index_has_every_page() -> None:
    listed = re.findall(r"^\| \[[^]]+\]\(([^)]+)\) \|", (ROOT / "docs/README.md").read_text(), re.MULTILINE)
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert len(listed) == len(set(listed))
    assert set(listed) == pages - {"README.md"}


def test_make_targets_in_the_readme_exist() -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"^make (\w+)", (ROOT / "README.md").read_text(), re.MULTILINE)) <= set(targets)
