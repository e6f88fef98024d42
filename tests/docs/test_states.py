"""The page of states is what the table of transitions says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def test_drawing_the_states_again_changes_nothing(tmp_path: Path) -> None:
    drawn = tmp_path / "states.md"
    subprocess.run(
        [sys.executable, str(ROOT / "tools" / "generate_states.py"), str(drawn)],
        check=True,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert drawn.read_text() == (ROOT / "docs" / "internals" / "states.md").read_text()
