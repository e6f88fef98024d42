"""Descriptions of features: their levels, and what all nodes support."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from kraftpb.v1.admin_pb2 import (
    FeatureDescription,
)
from kraftpb.v1.metadata_pb2 import (
    RegisterBrokerRecord,
    RegisterControllerRecord,
)
from statemachine.tables.cluster_tables import BROKERS, CONTROLLERS, FEATURES
from statemachine.words.features import (
    SUPPORTED,
    FeatureRange,
)

OFF: Final = 0


def describe_features(connection: sqlite3.Connection) -> list[FeatureDescription]:
    """The features that this program knows, by name, and the levels that all nodes support.

    0 to 0 if there is no level that all registered brokers and controllers support.
    """
    finalized = {feature.name: feature.level for _, feature in FEATURES.find(connection)}
    brokers = [broker for _, broker in BROKERS.find(connection)]
    controllers = [controller for _, controller in CONTROLLERS.find(connection)]
    ranges = [of_node for _, of_node in registered_ranges(brokers, controllers)]
    described = []
    for own in sorted(SUPPORTED, key=lambda of: of.name):
        least, most = _common_range(own, ranges)
        level = finalized.get(own.name, OFF)
        described.append(FeatureDescription(name=own.name, min_level=least, max_level=most, finalized_level=level))
    return described


def _common_range(own: FeatureRange, ranges: Iterable[Mapping[str, tuple[int, int]]]) -> tuple[int, int]:
    """The levels that this program and every node of `ranges` support; (0, 0) if there are none."""
    all_ranges = [(own.min_level, own.max_level), *(of_node.get(own.name, (OFF, OFF)) for of_node in ranges)]
    least, most = max(least for least, _ in all_ranges), min(most for _, most in all_ranges)
    return (least, most) if least <= most else (OFF, OFF)


def registered_ranges(
    brokers: Iterable[RegisterBrokerRecord], controllers: Iterable[RegisterControllerRecord]
) -> Iterator[tuple[str, dict[str, tuple[int, int]]]]:
    """Every registered node as messages name it, and the levels of each feature that it supports."""
    for broker in brokers:
        yield f"broker {broker.broker_id}", {of.name: (of.min_level, of.max_level) for of in broker.features}
    for controller in controllers:
        ranges = {of.name: (of.min_level, of.max_level) for of in controller.features}
        yield f"controller {controller.controller_id}", ranges
