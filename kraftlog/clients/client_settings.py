"""The settings of confluent-kafka that producers and consumers share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from confluent_kafka import KafkaError

from kraftbase.endpoint import Endpoint
from kraftlog.clients.broker_connection import CLIENT_ID
from kraftlog.commands.user_messages import show_to_user

POLL_SECONDS: Final = 0.1
"""How long the library may wait at a time. Python handles signals between two calls."""


def client_settings(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """The settings. The library writes no log: users are shown the errors that matter to them."""
    return {
        "bootstrap.servers": ",".join(map(str, endpoints)),
        "client.id": CLIENT_ID,
        "log_level": 0,
        "error_cb": _note_outage,
        "allow.auto.create.topics": False,
    }


def _note_outage(error: KafkaError) -> None:
    if error.code() == KafkaError._ALL_BROKERS_DOWN:
        show_to_user("waiting for the brokers: none of them answers")
