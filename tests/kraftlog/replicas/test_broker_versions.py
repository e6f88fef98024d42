"""What another broker offers, and which version of a request it is sent."""

from __future__ import annotations

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.kafka.messages.api_versions import ApiVersion, ApiVersionsResponse
from kraftlog.kafka.messages.fetch import FetchRequest
from kraftlog.kafka.notation import Versions
from kraftlog.replicas.broker_versions import BrokerVersions

NEWEST = 4
NEEDED = Versions(15, 18)


def offer(key: int, lowest: int, highest: int, error: int = 0) -> ApiVersionsResponse:
    keys = (ApiVersion(api_key=key, min_version=lowest, max_version=highest),)
    return ApiVersionsResponse(error_code=error, api_keys=keys)


def said(answer: ApiVersionsResponse) -> BrokerVersions:
    versions = BrokerVersions()
    versions.answered(answer)
    return versions


@pytest.mark.parametrize(("theirs", "chosen"), [((4, 18), 18), ((4, 17), 17), ((0, 15), 15), ((18, 30), 18)])
def test_the_newest_version_is_chosen_that_both_know(theirs: tuple[int, int], chosen: int) -> None:
    versions = said(offer(1, *theirs))
    assert versions.question_version is None
    assert versions.choose(FetchRequest, NEEDED) == chosen
    assert versions.chosen == {1: chosen}


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (offer(1, 4, 14), "Fetch in versions 4-14, and 15-18 are needed"),
        (offer(1, 19, 20), "Fetch in versions 19-20"),
        (offer(2, 1, 10), "does not offer Fetch"),
    ],
)
def test_a_broker_that_knows_no_version_of_an_api_is_told_apart(answer: ApiVersionsResponse, what: str) -> None:
    with pytest.raises(ApiError, match=what) as raised:
        said(answer).choose(FetchRequest, NEEDED)
    assert raised.value.code is ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(
    ("answer", "then"),
    [
        (offer(18, 0, 3, ErrorCode.UNSUPPORTED_VERSION), 3),
        (offer(18, 0, 99, ErrorCode.UNSUPPORTED_VERSION), NEWEST),
        (offer(18, 0, -5, ErrorCode.UNSUPPORTED_VERSION), 0),
        (ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION), 0),
    ],
)
def test_a_broker_that_lacks_the_newest_api_versions_is_asked_once_more(answer: ApiVersionsResponse, then: int) -> None:
    versions = BrokerVersions()
    assert versions.question_version == NEWEST
    versions.answered(answer)
    assert versions.question_version == then
    with pytest.raises(ApiError):
        versions.answered(answer)


def test_another_error_than_that_is_the_end() -> None:
    with pytest.raises(ApiError, match="error 42"):
        said(offer(18, 0, 4, 42))
