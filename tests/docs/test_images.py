"""The README's pictures are what tools/draw_images.py draws."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.paths import ROOT


def test_drawing_the_pictures_again_changes_nothing(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(ROOT / "tools" / "draw_images.py"), str(tmp_path)], check=True)
    drawn = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert len(drawn) == 2
    assert drawn == {path.name: path.read_text() for path in (ROOT / "docs" / "images").iterdir()}
