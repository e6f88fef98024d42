"""AlterConfigs, incremental: from alterations and the latest state to records and an answer. Nothing changes here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kraftpb.v1.admin_pb2 import AlterConfigsRequest, AlterConfigsResponse, AlteredResource, ConfigAlteration
from kraftpb.v1.metadata_pb2 import ConfigRecord, MetadataRecord
from raft.core.errors import ErrorCode, ProtocolError
from statemachine.config_definitions import check_config, check_config_name, check_topic_configs
from statemachine.limits import check_record_count
from statemachine.names import check_name_lengths, quoted
from statemachine.overlay import Overlay
from statemachine.resources import CLUSTER_DEFAULT, ResourceType
from statemachine.topic_operations import repeats

BROKER_ID_MAX: Final = 2**31 - 1


def alter_configs(state: Overlay, request: AlterConfigsRequest) -> tuple[list[MetadataRecord], AlterConfigsResponse]:
    """The records that alter the resources whose alterations are all valid, and an answer for each resource.

    A resource is altered as a whole or not at all. A topic's config that has that value already makes no record; a
    broker's always does, as the broker takes it as the sign to load the value again (CT-60). Raises
    ProtocolError(RECORD_LIST_TOO_LARGE) if there are too many alterations for one batch (CT-12), INVALID_REQUEST if a
    name is far too long.
    """
    check_record_count(len(request.alterations))
    check_name_lengths(alteration.resource_name for alteration in request.alterations)
    by_resource: dict[tuple[int, str], list[ConfigAlteration]] = {}
    for alteration in request.alterations:
        by_resource.setdefault((alteration.resource_type, alteration.resource_name), []).append(alteration)
    records: list[MetadataRecord] = []
    response = AlterConfigsResponse()
    for (resource_type, resource_name), alterations in by_resource.items():
        answer = AlteredResource(resource_type=resource_type, resource_name=resource_name)
        try:
            records += _alter_resource(state, resource_type, resource_name, alterations)
        except ProtocolError as error:
            answer.error_code, answer.error_message = error.code, error.args[0]
        response.resources.append(answer)
    return ([] if request.validate_only else records), response


def check_resource(state: Overlay, resource_type: int, resource_name: str) -> ResourceType:
    """Raise ProtocolError unless there is such a resource."""
    match resource_type:
        case ResourceType.TOPIC:
            if state.topic_id(resource_name) is None:
                raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {quoted(resource_name)}")
            return ResourceType.TOPIC
        case ResourceType.BROKER:
            if resource_name != CLUSTER_DEFAULT:
                _check_broker(state, resource_name)
            return ResourceType.BROKER
    raise ProtocolError(
        ErrorCode.INVALID_REQUEST, f"resource type {resource_type} has no configs; use 2 for topics or 4 for brokers"
    )


def parse_broker_name(resource_name: str) -> int:
    """The broker id that the name of a broker resource is; raises ProtocolError(INVALID_REQUEST) if it is none."""
    if resource_name.isascii() and resource_name.isdigit() and len(resource_name) <= 10:
        broker_id = int(resource_name)
        if broker_id <= BROKER_ID_MAX and str(broker_id) == resource_name:  # "01" would be another resource than "1"
            return broker_id
    raise ProtocolError(
        ErrorCode.INVALID_REQUEST,
        f"{quoted(resource_name)} is no broker; give its id without leading zeros, or nothing for the default of all",
    )


def _check_broker(state: Overlay, resource_name: str) -> None:
    broker_id = parse_broker_name(resource_name)
    if not state.broker_exists(broker_id):
        raise ProtocolError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered")


def _alter_resource(
    state: Overlay, type_number: int, resource_name: str, alterations: Sequence[ConfigAlteration]
) -> list[MetadataRecord]:
    resource_type = check_resource(state, type_number, resource_name)
    for name in repeats(alteration.name for alteration in alterations):
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"config {quoted(name)} is altered more than once")
    present = state.configs(resource_type, resource_name)
    altered = dict(present)
    records = []
    for alteration in alterations:
        value = _new_value(resource_type, alteration, present)
        if value is None:
            altered.pop(alteration.name, None)
        else:
            altered[alteration.name] = value
        if resource_type is ResourceType.BROKER or value != present.get(alteration.name):
            config = ConfigRecord(
                resource_type=resource_type, resource_name=resource_name, name=alteration.name, value=value
            )
            records.append(MetadataRecord(config=config))
    if resource_type is ResourceType.TOPIC:
        check_topic_configs(altered)
    return records


def _new_value(resource_type: ResourceType, alteration: ConfigAlteration, present: Mapping[str, str]) -> str | None:
    """The value that the alteration asks for, None to remove it; raises ProtocolError(INVALID_CONFIG)."""
    match alteration.kind:
        case ConfigAlteration.SET:
            check_config(resource_type, alteration.name, alteration.value)
            return alteration.value
        case ConfigAlteration.DELETE:
            # One that an earlier version knew may be there and must be removable.
            if alteration.name not in present:
                check_config_name(resource_type, alteration.name)
            return None
    raise ProtocolError(ErrorCode.INVALID_REQUEST, f"{alteration.kind} is no kind of alteration; use SET or DELETE")
