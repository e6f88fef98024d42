"""Which handler gets a request, and what this broker offers: an API without a handler is not offered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kraftlog.broker.apis.api_versions import ApiVersionsApi
from kraftlog.broker.metadata.cluster_view import ClusterView
from kraftlog.kafka.apis import API_VERSIONS, NAMES, OWN_NAMES, api_of
from kraftlog.kafka.notation import Versions
from kraftlog.network.requests import ClientRequest, Handler, Reply

KEYS: Final[Mapping[str, int]] = {name: key for key, name in (NAMES | OWN_NAMES).items()}


class Dispatch:
    """Passes each request to its handler. Not thread-safe."""

    def __init__(self, handlers: Mapping[str, Handler], cluster: ClusterView) -> None:
        """`handlers` are by the API's name. ApiVersions is handled here, because its answer lists the other APIs."""
        self._handlers = {KEYS[name]: handler for name, handler in handlers.items()}
        offered = {key: _stable_versions(key) for key in (*self._handlers, API_VERSIONS)}
        self.offered: Mapping[int, Versions] = offered
        """The offered versions of each API, by the API's key."""
        self._handlers[API_VERSIONS] = ApiVersionsApi(offered, cluster).handle

    def handle(self, request: ClientRequest, reply: Reply) -> None:
        """Pass a request to its handler."""
        self._handlers[request.api.key](request, reply)


def _stable_versions(key: int) -> Versions:
    """Return the versions that Kafka offers by default: without the newest ones that may still change."""
    request = api_of(key).request
    newest = max(version for version in request.VERSIONS if version not in request.UNSTABLE)
    return Versions(request.VERSIONS.lowest, newest)
