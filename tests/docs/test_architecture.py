"""docs/ARCHITECTURE.md draws the rooms as they are, and knows every dependency."""

from __future__ import annotations

import re
import tomllib
from typing import Any, Final

from tests.docs.code_names import is_there
from tests.docs.test_paths import PATH
from tests.paths import ROOT

PAGE: Final = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
DRAWING: Final = PAGE.partition("## The parts")[2].partition("```\n")[2].partition("```")[0]
PROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())


def place(module: str) -> int:
    """Where the drawing has a room, such as `raft/core/` or `raft/node.py`, as a line's first word or behind a gap."""
    path = module.replace(".", "/")
    suffix = "/" if (ROOT / path).is_dir() else ".py"
    found = re.search(rf"(?:^ |  |, ){re.escape(path + suffix)}(?![\w/])", DRAWING, re.MULTILINE)
    assert found, f"the drawing lacks {path}{suffix}"
    return found.start()


def test_the_drawing_fits_a_screen_and_names_what_is_there() -> None:
    assert DRAWING
    assert max(map(len, DRAWING.splitlines())) <= 100
    assert [path for path in PATH.findall(DRAWING) if not is_there(path)] == []


def test_the_rooms_are_drawn_in_the_order_of_the_import_contract() -> None:
    contract = PROJECT["tool"]["importlinter"]["contracts"][0]
    assert contract["type"] == "layers"
    above = -1
    for layer in contract["layers"]:
        places = [place(module.strip()) for module in layer.split("|")]
        assert min(places) > above, f"{layer} is drawn above what may import it"
        above = max(places)


def test_every_dependency_has_its_reason() -> None:
    table = PAGE.partition("## Dependencies")[2]
    project = PROJECT["project"]
    optional = project["optional-dependencies"]
    for requirement in [*project["dependencies"], *optional["export"], *optional["spark"], *optional["clients"]]:
        name = re.split(r"[\[<>=]", requirement)[0]
        if name != project["name"]:
            assert re.search(rf"^\| .*\b{re.escape(name)}\b", table, re.MULTILINE), f"{name} has no row"
    for requirement in optional["dev"]:
        name = re.split(r"[<>=]", requirement)[0]
        assert name.startswith("types-") or re.search(rf"\b{re.escape(name)}\b", table), f"{name} is not named"
