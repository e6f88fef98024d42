"""Which handler a request goes to, and so what this broker offers: an API without a handler is not offered."""

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
    """Hands each request to its handler. For one thread."""

    def __init__(self, handlers: Mapping[str, Handler], cluster: ClusterView) -> None:
        """`handlers` by the API's name. ApiVersions is answered here, as it tells of the others."""
        self._handlers = {KEYS[name]: handler for name, handler in handlers.items()}
        offered = {key: _stable_versions(key) for key in (*self._handlers, API_VERSIONS)}
        self.offered: Mapping[int, Versions] = offered
        """The versions of each API that are answered, by the API's key."""
        self._handlers[API_VERSIONS] = ApiVersionsApi(offered, cluster).handle

    def handle(self, request: ClientRequest, reply: Reply) -> None:
        """Have a request answered."""
        self._handlers[request.api.key](request, reply)


def _stable_versions(key: int) -> Versions:
    """Those that Kafka offers by default: without the newest ones that may still change."""
    request = api_of(key).request
    newest = max(version for version in request.VERSIONS if version not in request.UNSTABLE)
    return Versions(request.VERSIONS.lowest, newest)
