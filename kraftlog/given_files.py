"""Files that a command is given to read."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from raft.core.errors import ConfigurationError

STANDARD_INPUT: Final = Path("-")


def read_given(path: Path, what: str) -> bytes:
    """All that is in a file, or in standard input for `-`; `what` says in messages which file is meant.

    Raises ConfigurationError that names the file.
    """
    try:
        return sys.stdin.buffer.read() if path == STANDARD_INPUT else path.read_bytes()
    except FileNotFoundError:
        raise ConfigurationError(f"there is no file {path}; give the path of {what}") from None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read ({error.strerror}); check the path and its rights") from None
