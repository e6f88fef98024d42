"""The base class of the two systems that carry out steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final, TypeAlias

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.difftest.image import Image
from kraftlog.difftest.records import Names, Record
from kraftlog.difftest.steps import Step

Answer: TypeAlias = dict[str, str]
"""A system's answer: for each part of the request ("" is the whole request) the error and the other compared values."""

SESSION_TIMEOUT_MS: Final = 3_000
"""How long a broker of a run may be silent. Only VanishBroker and a late registration wait for it."""

UNKNOWN_TOPIC_ID: Final = b"no topic has this"[:16]

_KAFKA_ONLY: Final = {
    -1: "UNKNOWN_SERVER_ERROR",
    29: "TOPIC_AUTHORIZATION_FAILED",
    33: "UNSUPPORTED_SASL_MECHANISM",
    43: "UNSUPPORTED_FOR_MESSAGE_FORMAT",
    60: "REASSIGNMENT_IN_PROGRESS",
    87: "INVALID_RECORD",
    96: "FEATURE_UPDATE_FAILED",
}


class Resigned(ApiError):
    """The active controller resigned because of a fault during a step. The message has the reason from its log."""


class System(ABC):
    """Three controllers. This process plays their brokers.

    `image` is the metadata after all records that were read, `names` has the system's ids and epochs.
    """

    def __init__(self) -> None:
        self.image = Image()
        self.names = Names()

    @property
    @abstractmethod
    def name(self) -> str:
        """The name in reports."""

    @abstractmethod
    async def execute(self, step: Step) -> Answer:
        """Carry out a step and return the answer. Raises ApiError if the system does not answer."""

    @abstractmethod
    async def read_records(self) -> list[Record]:
        """Return the committed records that were not read yet, at least all those that the last answer depends on."""

    def take(self, record: Record | None, records: list[Record]) -> None:
        """Apply a record that was read, and add it to `records`. Raises WrongRecord."""
        if record is not None:
            settled = self.image.settled(record)
            self.image.apply(settled)
            records.append(settled)


def error_name(code: int) -> str:
    """Kafka's name of an error."""
    if code in ErrorCode.__members__.values():
        return ErrorCode(code).name
    return _KAFKA_ONLY.get(code, f"error {code}")


def shown(code: int, **values: object) -> str:
    """Return one part of an answer. The values are compared only if there is no error."""
    name = error_name(code)
    return name if code else " ".join([name, *(f"{key}={value}" for key, value in values.items())])
