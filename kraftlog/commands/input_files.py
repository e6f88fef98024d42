"""Files that a command is given to read."""

from __future__ import annotations

from pathlib import Path

from kraftbase.errors import ConfigurationError


def read_input_file(path: Path, what: str) -> bytes:
    """All that is in a file; `what` describes the file in messages. Raises ConfigurationError that names it."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise ConfigurationError(f"there is no file {path}; give the path of {what}") from None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read ({error.strerror}); check the path and its rights") from None
