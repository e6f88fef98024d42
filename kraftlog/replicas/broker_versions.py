"""Negotiates the versions of requests to another broker, as Kafka does (KIP-35, KIP-511).

A connection begins with ApiVersions, in the newest version that this program knows. A broker that lacks that version
answers UNSUPPORTED_VERSION in version 0, with the versions that it has; the request is then sent again in one of these.
"""

from __future__ import annotations

from typing import Final

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.kafka.apis import API_VERSIONS, NAMES, OWN_SOFTWARE, api_of
from kraftlog.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftlog.kafka.notation import Message, Versions

QUESTION: Final = ApiVersionsRequest(client_software_name=OWN_SOFTWARE, client_software_version="unknown")
"""Names kraftlog as the client, so that a kraftlog broker also lists the APIs that no Kafka has."""


class BrokerVersions:
    """The API versions of the broker at the other end of one connection."""

    def __init__(self) -> None:
        self.question_version: int | None = api_of(API_VERSIONS).versions.highest
        """The version in which to send ApiVersions next; None once the broker has listed its versions."""
        self.chosen: dict[int, int] = {}
        """The versions chosen so far, by API key."""
        self._offered: dict[int, Versions] = {}
        self._is_second = False

    def answered(self, response: ApiVersionsResponse) -> None:
        """Apply the broker's response; ApiVersions must be sent again if `question_version` is not None.

        Raises ApiError(UNSUPPORTED_VERSION) if the broker does not list its versions.
        """
        offered = {api.api_key: Versions(api.min_version, api.max_version) for api in response.api_keys}
        if response.error_code == ErrorCode.NONE:
            self.question_version, self._offered = None, offered
            return
        if response.error_code != ErrorCode.UNSUPPORTED_VERSION or self._is_second:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"it answers ApiVersions with error {response.error_code} instead of its versions",
            )
        ours, theirs = api_of(API_VERSIONS).versions, offered.get(API_VERSIONS, Versions(0, 0))
        self.question_version = max(ours.lowest, min(ours.highest, theirs.highest))
        self._is_second = True

    def choose(self, request: type[Message], versions: Versions) -> int:
        """Return the newest of `versions` that the broker offers.

        Raises ApiError(UNSUPPORTED_VERSION) if it offers none of them.
        """
        name, theirs = NAMES[request.KEY], self._offered.get(request.KEY)
        if theirs is None:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"it does not offer {name}")
        version = min(theirs.highest, versions.highest)
        if version < max(theirs.lowest, versions.lowest):
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION, f"it offers {name} in versions {theirs}, and {versions} are needed"
            )
        self.chosen[request.KEY] = version
        return version
