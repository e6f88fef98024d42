"""Columns that hold lists: as JSON, so that SQL can search them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from kraftbase.ids import id_to_bytes, id_to_text
from kraftpb.v1.metadata_pb2 import BrokerEndpoint, SupportedFeature


def numbers_to_json(numbers: Sequence[int]) -> str:
    """A JSON array. Python writes a list of integers the same way."""
    return str([*numbers]) if numbers else "[]"


# Cached: the same lists occur again and again.
@lru_cache(maxsize=16_384)
def numbers_from_json(text: str) -> tuple[int, ...]:
    """What a JSON array holds."""
    return tuple(json.loads(text))


@lru_cache(maxsize=16_384)
def ids_to_json(ids: tuple[bytes, ...]) -> str:
    """A JSON array of ids as text."""
    return json.dumps([id_to_text(value) for value in ids])


@lru_cache(maxsize=16_384)
def ids_from_json(text: str) -> tuple[bytes, ...]:
    """The ids in a JSON array."""
    return tuple(map(id_to_bytes, json.loads(text)))


def endpoints_to_json(endpoints: Any) -> str:
    """A JSON array of listeners."""
    return json.dumps(
        [
            {"name": at.name, "host": at.host, "port": at.port, "security_protocol": at.security_protocol}
            for at in endpoints
        ]
    )


def endpoints_from_json(text: str) -> list[BrokerEndpoint]:
    """The listeners in a JSON array."""
    return [BrokerEndpoint(**listener) for listener in json.loads(text)]


def features_to_json(features: Any) -> str:
    """A JSON array of supported features."""
    return json.dumps(
        [{"name": given.name, "min_level": given.min_level, "max_level": given.max_level} for given in features]
    )


def features_from_json(text: str) -> list[SupportedFeature]:
    """The supported features in a JSON array."""
    return [SupportedFeature(**feature) for feature in json.loads(text)]
