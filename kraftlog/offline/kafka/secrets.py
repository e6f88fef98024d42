"""The secrets in a Kafka's metadata, which are never shown: credentials, tokens, and configs that are passwords."""

from __future__ import annotations

from typing import Any, Final

from kraftlog.kafka.json_values import json_value
from kraftlog.kafka.metadata_records import ConfigRecord
from kraftlog.kafka.notation import Message

HIDDEN: Final = "(hidden)"

SENSITIVE_ENDS: Final = (
    "password",
    "password.encoder.secret",
    "delegation.token.secret.key",
    "sasl.jaas.config",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.truststore.certificates",
)
"""How the names of Kafka's configs of type PASSWORD end; before them may be a listener's name and a mechanism."""


def is_sensitive(config: str) -> bool:
    """Whether the value of a config is a password."""
    return config.endswith(SENSITIVE_ENDS)


def without_password(record: Message) -> Message:
    """The record, or a copy with a value that can be shown."""
    if isinstance(record, ConfigRecord) and record.value is not None and is_sensitive(record.name):
        return ConfigRecord(
            resource_type=record.resource_type, resource_name=record.resource_name, name=record.name, value=HIDDEN
        )
    return record


def shown_fields(record: Message, version: int) -> dict[str, Any]:
    """The fields of a record by Kafka's names, without what must not be shown."""
    if record.IS_CLOSED:
        return {"hidden": True}
    return json_value(without_password(record), version)
