"""The resources that have configs: topics, brokers, and the default of all brokers."""

from __future__ import annotations

from typing import Final

from kraftbase.errors import ApiError, ErrorCode
from statemachine.metadata.state import MetadataState
from statemachine.words.names import METADATA_TOPIC, check_topic_name, quoted
from statemachine.words.resources import CLUSTER_DEFAULT, ResourceType

BROKER_ID_MAX: Final = 2**31 - 1


KAFKAS_OTHER_TYPES: Final[dict[int, str]] = {8: "broker loggers", 16: "client metrics", 32: "groups"}
"""Resources that have configs in Kafka only. Nothing here logs, measures or coordinates groups by them."""


def check_resource(state: MetadataState, resource_type: int, resource_name: str) -> ResourceType:
    """Raise ApiError unless the resource exists, and its configs are kept here.

    A name that no topic can have is INVALID_TOPIC_EXCEPTION, as in Kafka.
    """
    known_type = check_resource_type(resource_type)
    if known_type is ResourceType.TOPIC:
        if state.topic_id(resource_name) is None:
            if resource_name != METADATA_TOPIC:  # which Kafka has, though without configs
                check_topic_name(resource_name)
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {quoted(resource_name)}")
    elif resource_name != CLUSTER_DEFAULT:
        broker_id = parse_broker_name(resource_name)
        if state.broker(broker_id) is None:
            raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered")
    return known_type


def check_describable(state: MetadataState, resource_type: int, resource_name: str) -> ResourceType:
    """As `check_resource`; but the configs of an unregistered broker can be read, and then deleted."""
    known_type = check_resource_type(resource_type)
    if known_type is ResourceType.BROKER and state.configs(known_type, resource_name):
        return known_type
    return check_resource(state, resource_type, resource_name)


def check_resource_type(resource_type: int) -> ResourceType:
    """The type of that number; raises ApiError(INVALID_REQUEST) unless such resources have configs here."""
    if resource_type in KAFKAS_OTHER_TYPES:
        what = f"configs of {KAFKAS_OTHER_TYPES[resource_type]} (resource type {resource_type}) are not supported"
    elif resource_type in tuple(ResourceType):
        return ResourceType(resource_type)
    else:
        what = f"resource type {resource_type} has no configs"
    raise ApiError(ErrorCode.INVALID_REQUEST, f"{what}; use 2 for topics or 4 for brokers")


def parse_broker_name(resource_name: str) -> int:
    """The broker id in the name of a broker resource; raises ApiError(INVALID_REQUEST) if the name is not one."""
    if resource_name.isascii() and resource_name.isdigit() and len(resource_name) <= 10:
        broker_id = int(resource_name)
        if broker_id <= BROKER_ID_MAX and str(broker_id) == resource_name:  # "01" would be another resource than "1"
            return broker_id
    raise ApiError(
        ErrorCode.INVALID_REQUEST,
        f"{quoted(resource_name)} is no broker; give its id without leading zeros, or nothing for the default of all",
    )
