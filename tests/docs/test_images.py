"""The README's pictures are what tools/draw_images.py draws; the recording is one of tools/record_kill.py."""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from tests.paths import ROOT
from tools.record_kill import RECORDING, Screen, drawn

SVG = "{http://www.w3.org/2000/svg}"


def test_drawing_the_pictures_again_changes_nothing(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(ROOT / "tools" / "draw_images.py"), str(tmp_path)], check=True)
    pictures = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert len(pictures) == 2
    images = {path.name: path.read_text() for path in (ROOT / "docs" / "images").iterdir()}
    assert pictures.items() <= images.items()
    assert images.keys() - pictures.keys() == {RECORDING.name}


def test_the_recording_is_drawn_as_it_is_now_and_has_a_killed_leader() -> None:
    found = RECORDING.read_text()
    root = ElementTree.fromstring(found)
    screens = [
        Screen(lines[0], tuple(lines[1:]))
        for group in root.iter(f"{SVG}g")
        for lines in [["".join(text.itertext()) for text in group.iter(f"{SVG}text")]]
    ]
    assert drawn(screens) == found
    assert len(found) < 100 * 1024
    leaders = [re.findall(r"leader +(\d+)", "\n".join(screen.lines)) for screen in screens]
    assert len(set(map(tuple, leaders))) == 2
