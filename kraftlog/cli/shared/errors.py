"""Expected errors as one line: Kafka's name, what is wrong, what to do."""

from __future__ import annotations

import errno
import re
from typing import Final

import typer

from kraftbase.errors import ApiError, ConfigurationError, DirectoryError, ErrorCode, KraftlogError, StorageError


def one_line(error: Exception) -> str | None:
    """`KAFKA_ERROR_NAME: what; what to do`, or None for an unexpected error."""
    match error:
        case ApiError():
            return str(error)
        case ConfigurationError():
            return f"{ErrorCode.INVALID_CONFIG.name}: {error}"
        case DirectoryError():
            return f"{error.code.name}: {error}"
        case StorageError():
            return f"{ErrorCode.KAFKA_STORAGE_ERROR.name}: {error}"
        case KraftlogError():
            return f"{ErrorCode.UNKNOWN_SERVER_ERROR.name}: {error}"
        case OSError(errno=errno.EADDRINUSE):
            return f"{ErrorCode.INVALID_CONFIG.name}: {error.strerror}; free the port or choose another one"
        case OSError(filename=str(name)):
            return f"{ErrorCode.KAFKA_STORAGE_ERROR.name}: {name}: {error.strerror}; check the path and its permissions"
        case _:
            return None


_NO_NUMBER: Final = re.compile(r" is not a valid (?P<kind>int|integer|float)(?: range)?\.?$")


_WHERE_TO_FIND: Final = {
    "KRAFTLOG_BROKERS": "`kraftlog brokers list` shows where brokers listen",
    "KRAFTLOG_BOOTSTRAP_SERVER": "`kraftlog up` prints it; else it is `listeners` in a node's configuration file",
}
"""Where to find the value of a missing option, by the option's environment variable."""


def in_plain_words(error: typer.TyperException) -> str:
    """What is wrong with the arguments. For a missing address, also where to find it; for a value that is not a number,
    the valid range.
    """
    message = error.format_message()
    match = _NO_NUMBER.search(message)
    if match is None:
        variable = getattr(getattr(error, "param", None), "envvar", None)
        where = _WHERE_TO_FIND.get(str(variable)) if message.startswith("Missing option") else None
        return message if where is None else f"{message}; {where}"
    number = "a number" if match["kind"] == "float" else "a whole number"
    of_type = getattr(getattr(error, "param", None), "type", None)
    least, most = getattr(of_type, "min", None), getattr(of_type, "max", None)
    bounds = "" if least is None else f" from {least} on" if most is None else f" from {least} to {most}"
    return f"{message[: match.start()]} is not {number}{bounds}"
