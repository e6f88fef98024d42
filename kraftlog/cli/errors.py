"""Expected errors as one line: Kafka's name, what is wrong, what to do."""

from __future__ import annotations

import errno

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
            return f"{ErrorCode.KAFKA_STORAGE_ERROR.name}: {name}: {error.strerror}; check the path and its rights"
        case _:
            return None
