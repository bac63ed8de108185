"""Where the explorer stands in the simulated file system: the state's tree, and what its calls did to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from envs.bfcl.procedural_scene import Scene
from store.rows import Json


@dataclass(slots=True)
class Files:
    path: list[str] = field(default_factory=list)
    """Names of the directories from the top to here."""
    tree: dict[str, Any] = field(default_factory=dict)
    """{name: None for a file, a tree for a directory}."""
    contents: dict[str, str] = field(default_factory=dict)
    """{name of a file: its text}, wherever it is."""

    @property
    def here(self) -> dict[str, Any]:
        place = self.tree
        for name in self.path:
            place = place.get(name) or {}
        return place

    @property
    def files(self) -> list[str]:
        return [name for name, inner in self.here.items() if inner is None]

    @property
    def folders(self) -> list[str]:
        return [name for name, inner in self.here.items() if inner is not None]

    @property
    def empty(self) -> list[str]:
        return [name for name in self.folders if not self.here[name]]

    def apply(self, name: str, args: Any) -> None:
        """What one successful call did."""
        if name == "cd":
            folder = str(args.get("folder", ""))
            self.path = self.path[:-1] if folder == ".." else [*self.path, folder]
        elif name in ("touch", "echo") and args.get("file_name"):
            self.here.setdefault(args["file_name"], None)
        elif name == "mkdir":
            self.here[args["dir_name"]] = {}
        elif name in ("rm", "rmdir"):
            self.here.pop(args.get("file_name") or args.get("dir_name"), None)
        elif name in ("cp", "mv"):
            self._copy(args["source"], args["destination"], keep=name == "cp")

    def _copy(self, source: str, target: str, *, keep: bool) -> None:
        moved = self.here.get(source)
        if not keep:
            self.here.pop(source, None)
        folder = self.here.get(target)
        if isinstance(folder, dict):
            folder[source] = moved
        else:
            self.here[target] = moved


def files(scene: Scene) -> Files:
    """After all calls of the log."""
    root: Json = next((config["root"] for config in scene.state.values() if "root" in config), {})
    found = Files()
    found.tree = _tree(root, found.contents)
    found.path = list(found.tree)[:1]
    for call in scene.calls:
        found.apply(call.name, call.args)
    return found


def _tree(contents: Json, texts: dict[str, str]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for name, node in contents.items():
        if node.get("type") == "directory":
            tree[name] = _tree(node.get("contents", {}), texts)
        else:
            tree[name] = None
            texts[name] = str(node.get("content", ""))
    return tree
