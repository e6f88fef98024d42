"""Archives of files that other versions, and other programs, have written."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any


def unpack(archive: Path, directory: Path) -> None:
    """Unpack `archive`, which is of this repository, into `directory`."""
    # Debian 12's Python 3.11.2 has no filters yet; later versions ask for one.
    filters: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(archive) as opened:
        opened.extractall(directory, **filters)
