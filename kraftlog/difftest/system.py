"""A system that carries out steps: what the two of them share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final, TypeAlias

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.difftest.image import Image
from kraftlog.difftest.records import Names, Record
from kraftlog.difftest.steps import Step

Answer: TypeAlias = dict[str, str]
"""What a system answered: for each part of the request ("" is the whole) the error, and what else is compared."""

SESSION_TIMEOUT_MS: Final = 3_000
"""How long a broker of a run may be silent. Nothing but VanishBroker waits for it."""

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
    """The active controller resigned because of a step, without a request to resign: a fault. It says why."""


class System(ABC):
    """Three controllers and the brokers that this process plays for them.

    `image` is what all the records that were read add up to, `names` what the system calls things.
    """

    def __init__(self) -> None:
        self.image = Image()
        self.names = Names()

    @property
    @abstractmethod
    def name(self) -> str:
        """For people."""

    @abstractmethod
    async def carry_out(self, step: Step) -> Answer:
        """Do a step, and return when its answer is there. Raises ApiError if the system does not answer."""

    @abstractmethod
    async def read_records(self) -> list[Record]:
        """What is committed and was not read yet, at least all that the last answer depends on."""

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
    """A part of an answer: the values count only without an error."""
    name = error_name(code)
    return name if code else " ".join([name, *(f"{key}={value}" for key, value in values.items())])
