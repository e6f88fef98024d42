"""Cluster ids and directory ids as text: 22 characters of URL-safe base64, as Kafka prints every uuid (FM-03)."""

from __future__ import annotations

import base64
import binascii
from uuid import UUID, uuid4

from kraftbase.errors import ConfigurationError

TEXT_LENGTH = 22


def uuid_to_text(value: UUID) -> str:
    """`value` as 22 characters, without padding."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode("ascii")


def uuid_from_text(text: str) -> UUID:
    """The uuid for which `uuid_to_text` returns exactly `text`. Raises ConfigurationError if there is none."""
    try:
        value = UUID(bytes=base64.urlsafe_b64decode(text + "=="))
    except (ValueError, binascii.Error):
        value = None
    if value is None or uuid_to_text(value) != text:
        raise ConfigurationError(
            f"{text!r} is not an id: it must be a uuid as {TEXT_LENGTH} characters of URL-safe base64,"
            f" for example {uuid_to_text(UUID(int=2**127))}"
        )
    return value


def random_uuid() -> UUID:
    """A new random uuid (version 4), so never zero, whose text does not start with a dash.

    A leading dash would make the id look like an option on a command line; Kafka avoids it too.
    """
    while True:
        value = uuid4()
        if not uuid_to_text(value).startswith("-"):
            return value


def random_cluster_id() -> str:
    """A new random cluster id."""
    return uuid_to_text(random_uuid())
