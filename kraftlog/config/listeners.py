"""Listeners of brokers as users write them: `NAME://host:port`.

Every function raises ConfigurationError that quotes the text and describes the correct form.
"""

from __future__ import annotations

import re
from typing import Final

from kraftbase.errors import ConfigurationError
from kraftlog.config.endpoints import PORT_MAX, parse_endpoint, parse_reachable_endpoint
from statemachine.query.descriptions import BrokerListener

_LISTENER: Final = re.compile(r"(?P<name>[A-Z0-9_]+)://(?P<address>.+)")


def parse_listener(text: str) -> BrokerListener:
    """`NAME://host:port`, which others can reach."""
    name, address = _named(text)
    endpoint = parse_reachable_endpoint(address)
    return BrokerListener(name, endpoint.host, endpoint.port)


def parse_bound_listener(text: str) -> BrokerListener:
    """`NAME://host:port` that a broker binds; port 0 is any that is free."""
    name, address = _named(text)
    is_any_port = address.endswith(":0")
    endpoint = parse_endpoint(f"{address.removesuffix(':0')}:{PORT_MAX}" if is_any_port else address)
    return BrokerListener(name, endpoint.host, 0 if is_any_port else endpoint.port)


def _named(text: str) -> tuple[str, str]:
    match = _LISTENER.fullmatch(text)
    if match is None:
        raise ConfigurationError(
            f"{text!r} is not a listener; write NAME://host:port, as in PLAINTEXT://localhost:9092"
        )
    return match["name"], match["address"]
