"""A connection of a command to one broker: one request at a time."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self, TypeVar, cast

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftlog.admin.client.time_limit import allowed_call_seconds
from kraftlog.clients.broker_errors import refusal
from kraftlog.kafka.apis import OWN_NAMES, OWN_SOFTWARE, api_of
from kraftlog.kafka.connections import ClientConnection, Response
from kraftlog.kafka.errors import MalformedBytes
from kraftlog.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftlog.kafka.notation import Message, Versions

CLIENT_ID: Final = "kraftlog"
ANSWER_TIMEOUT_SECONDS: Final = 10.0
"""For a connection, and for each answer, unless `--timeout` gives another limit."""

API_VERSIONS_VERSION: Final = 0
"""This version has everything needed, and every broker answers it. Only later versions name the client (KIP-511)."""

NAMED_API_VERSIONS_VERSION: Final = 3
"""The first version that names the client. A kraftlog broker reports the APIs that Kafka lacks to its own client only.
"""

SOFTWARE_VERSION: Final = "unknown"
"""As in Kafka's client when unknown: no broker uses it."""

HINT: Final = "give the address of a broker; a kraftlog node that is not a broker does not speak Kafka's protocol"

M = TypeVar("M", bound=Message)


class BrokerConnection:
    """A connection to one broker. Each request goes in the newest version that both know."""

    def __init__(self, endpoint: Endpoint) -> None:
        """Connect, and ask for the versions. Raises ApiError: BROKER_NOT_AVAILABLE, CORRUPT_MESSAGE."""
        self.endpoint = endpoint
        self._messages = ClientConnection(CLIENT_ID)
        self._offered: Mapping[int, Versions] = {}
        try:
            self._socket = socket.create_connection(endpoint, _seconds())
        except OSError as error:
            raise self._gone(_reason(error)) from None
        except (OverflowError, UnicodeError) as error:  # a broker may advertise any host and any port
            raise self._gone(str(error)) from None
        try:
            self._offered = self._ask_versions(ApiVersionsRequest(), API_VERSIONS_VERSION)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def call(self, request: Message, answer: type[M]) -> M:
        """The answer to a request, of type `answer`, errors included. Raises ApiError: BROKER_NOT_AVAILABLE,
        UNSUPPORTED_VERSION, or CORRUPT_MESSAGE for bytes that are not an answer.
        """
        return cast(M, self._exchange(request, self._version(request)).body)

    def _ask_versions(self, request: ApiVersionsRequest, version: int) -> dict[int, Versions]:
        response = self._exchange(request, version)
        answer = cast(ApiVersionsResponse, response.body)
        if answer.error_code != ErrorCode.NONE:
            raise refusal(answer.error_code, f"the broker at {self.endpoint} does not list the versions that it knows")
        return {of.api_key: Versions(of.min_version, of.max_version) for of in answer.api_keys}

    def _version(self, request: Message) -> int:
        api = api_of(request.KEY)
        if api.key in OWN_NAMES and api.key not in self._offered:
            named = ApiVersionsRequest(client_software_name=OWN_SOFTWARE, client_software_version=SOFTWARE_VERSION)
            self._offered = self._ask_versions(named, NAMED_API_VERSIONS_VERSION)
        theirs = self._offered.get(api.key)
        if theirs is None:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the broker at {self.endpoint} does not answer {api.name}; ask another one",
            )
        version = min(theirs.highest, api.versions.highest)
        if version not in theirs or version not in api.versions:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the broker at {self.endpoint} knows versions {theirs} of {api.name}, this program {api.versions};"
                " use a Kafka of another release",
            )
        return version

    def _exchange(self, request: Message, version: int) -> Response:
        deadline = time.monotonic() + _seconds()
        try:
            self._socket.settimeout(_seconds())
            self._socket.sendall(b"".join(self._messages.send(request, version)))
            while (response := self._messages.next_event()) is None:
                self._receive(deadline)
        except OSError as error:
            raise self._gone(_reason(error)) from None
        except MalformedBytes as error:
            raise ApiError(
                ErrorCode.CORRUPT_MESSAGE, f"the answer of {self.endpoint} is not in Kafka's protocol ({error}); {HINT}"
            ) from None
        return response

    def _receive(self, deadline: float) -> None:
        seconds_left = deadline - time.monotonic()
        if seconds_left <= 0:
            raise TimeoutError
        self._socket.settimeout(seconds_left)
        space = self._messages.frames.space()
        count = self._socket.recv_into(space)
        if not count:
            raise ConnectionResetError(f"it has closed the connection; {HINT}")
        self._messages.frames.received(count)

    def _gone(self, reason: str) -> ApiError:
        return ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"the broker at {self.endpoint} does not answer: {reason}")


def _seconds() -> float:
    return allowed_call_seconds(ANSWER_TIMEOUT_SECONDS)


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer in time; check the address: {HINT}"
    return error.strerror or str(error)
