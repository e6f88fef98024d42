"""The errors that users catch: by code, or by the subclass for the code."""

from __future__ import annotations

import pytest

from kraftbase.errors import (
    ApiError,
    ErrorCode,
    NotLeaderError,
    ThrottlingQuotaExceededError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)


class Lost(ApiError):
    """One of a program's own."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.NOT_CONTROLLER, "lost")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.NOT_CONTROLLER, NotLeaderError),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, NotLeaderError),
        (ErrorCode.THROTTLING_QUOTA_EXCEEDED, ThrottlingQuotaExceededError),
        (ErrorCode.TOPIC_ALREADY_EXISTS, TopicAlreadyExistsError),
        (ErrorCode.UNKNOWN_TOPIC_ID, UnknownTopicOrPartitionError),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UnknownTopicOrPartitionError),
        (ErrorCode.INVALID_REQUEST, ApiError),
    ],
)
def test_an_error_is_of_the_subclass_for_its_code(code: ErrorCode, kind: type[ApiError]) -> None:
    error = ApiError(code, "no")
    assert (type(error), error.code, error.args, str(error)) == (kind, code, ("no",), f"{code.name}: no")


def test_an_error_that_says_more_stays_what_it_is() -> None:
    assert (type(Lost()), Lost().code, Lost().args) == (Lost, ErrorCode.NOT_CONTROLLER, ("lost",))


def test_an_error_is_made_again_as_the_same_kind() -> None:
    error = ApiError(ErrorCode.NOT_CONTROLLER, "no")
    assert type(type(error)(error.code, f"{error.args[0]} more")) is NotLeaderError
