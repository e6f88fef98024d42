"""Files that a command is given to read."""

from __future__ import annotations

from pathlib import Path

from kraftbase.errors import ConfigurationError


def read_input_file(path: Path, what: str) -> bytes:
    """The content of a file; `what` describes the file in messages. Raises ConfigurationError that names the file."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise ConfigurationError(f"file {path} does not exist; give the path of {what}") from None
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be read ({error.strerror}); check the path and its permissions"
        ) from None
