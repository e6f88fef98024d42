"""The checked-in protocol code is what the schemas say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def files_below(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): path.read_text()
        for path in sorted(directory.rglob("*"))
        if path.suffix in (".py", ".pyi")
    }


def test_generating_the_protocol_again_changes_nothing(tmp_path: Path) -> None:
    environment = {"PATH": str(Path(sys.executable).parent)}
    subprocess.run(
        [sys.executable, str(ROOT / "tools" / "generate_protocol.py"), str(tmp_path)],
        check=True,
        capture_output=True,
        env=environment,
    )
    assert files_below(tmp_path / "kraftpb") == files_below(ROOT / "kraftpb")
