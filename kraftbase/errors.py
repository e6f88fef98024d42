"""Error codes with Kafka's names and numbers, and the exceptions of the project, drawn once:

KraftlogError                 everything that we raise on purpose
├── ApiError                  carries an ErrorCode: the answer to a peer or caller
│   ├── NotLeaderError                  another node leads, or none does
│   ├── ThrottlingQuotaExceededError    too many requests at once, or too many pending
│   ├── TopicAlreadyExistsError
│   └── UnknownTopicOrPartitionError
├── StorageError              a file or directory is not what it must be; the message says which and why
│   ├── OutOfSpace            no room for an append; nothing was written
│   ├── CorruptLog            bytes that were durable are damaged
│   └── CorruptSnapshot       a snapshot is not whole
├── DirectoryError            identity, lock or format version of a data directory refuses the start
└── ConfigurationError        a setting is missing, unknown or contradicts another

InvariantViolation            a bug or lost durability: never caught, ends the process
FlushFailed                   fsync failed: ends the process, or the use of a broker's log directory
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final, Self, cast


class ErrorCode(IntEnum):
    """Kafka's error codes, by Kafka's names. Only those that this project uses in answers."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    KAFKA_STORAGE_ERROR = 56
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    INVALID_RECORD = 87
    THROTTLING_QUOTA_EXCEEDED = 89
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    INVALID_UPDATE_VERSION = 95
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_CLUSTER_ID = 104
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    INVALID_REGISTRATION = 119
    INVALID_VOTER_KEY = 125


class KraftlogError(Exception):
    """Base of everything that kraftlog raises on purpose."""


class ApiError(KraftlogError):
    """A request was refused. `code` is Kafka's error code; the message explains the error and what to do.

    An ApiError with one of the codes below is an instance of the subclass for that code.
    """

    def __new__(cls, *arguments: Any, **named: Any) -> Self:
        """As `__init__`."""
        made = _BY_CODE.get(arguments[0], cls) if cls is ApiError and arguments else cls
        return cast(Self, super().__new__(made, *arguments))

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code

    def __str__(self) -> str:
        return f"{self.code.name}: {super().__str__()}"


class NotLeaderError(ApiError):
    """NOT_LEADER_OR_FOLLOWER or NOT_CONTROLLER. The message states whether the request may have taken effect."""


class ThrottlingQuotaExceededError(ApiError):
    """THROTTLING_QUOTA_EXCEEDED: too many requests at once, or too many pending; try again later."""


class TopicAlreadyExistsError(ApiError):
    """TOPIC_ALREADY_EXISTS."""


class UnknownTopicOrPartitionError(ApiError):
    """UNKNOWN_TOPIC_OR_PARTITION or UNKNOWN_TOPIC_ID."""


_BY_CODE: Final[dict[ErrorCode, type[ApiError]]] = {
    ErrorCode.NOT_CONTROLLER: NotLeaderError,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: NotLeaderError,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: ThrottlingQuotaExceededError,
    ErrorCode.TOPIC_ALREADY_EXISTS: TopicAlreadyExistsError,
    ErrorCode.UNKNOWN_TOPIC_ID: UnknownTopicOrPartitionError,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: UnknownTopicOrPartitionError,
}


def error_name(code: int) -> str:
    """The name of an error code; of one that is not known here, its number."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def invalid_request(reason: str) -> ApiError:
    """An ApiError(INVALID_REQUEST) that states what is wrong with a request."""
    return ApiError(ErrorCode.INVALID_REQUEST, reason)


class StorageError(KraftlogError):
    """A file or directory is not what it must be."""


class OutOfSpace(StorageError):
    """There is no room for an append. Nothing was written; appends work again when there is room."""


class CorruptLog(StorageError):
    """Bytes that were durable are damaged."""


class CorruptSnapshot(StorageError):
    """A snapshot is incomplete or damaged: it must be neither loaded nor served."""


class DirectoryError(KraftlogError):
    """A data directory is foreign, locked, not formatted, or of an unknown format version.

    `code` is Kafka's name for it: INCONSISTENT_CLUSTER_ID for another cluster's directory, else KAFKA_STORAGE_ERROR.
    """

    def __init__(self, message: str, code: ErrorCode = ErrorCode.KAFKA_STORAGE_ERROR) -> None:
        super().__init__(message)
        self.code = code


class ConfigurationError(KraftlogError):
    """A setting is missing, unknown, or contradicts another."""


class InvariantViolation(BaseException):
    """An invariant does not hold. It is never caught: the process ends, the log stays as it is."""


class FlushFailed(BaseException):
    """fsync failed: the page cache can no longer be trusted. It is never caught, and the process ends.

    There is one exception: a log directory of a broker, which is no longer used, while other directories are.
    """
