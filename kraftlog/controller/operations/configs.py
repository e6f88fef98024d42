"""AlterConfigs, incremental: from alterations and the latest state to records and an answer. Nothing changes here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.controller.operations.lookups import about
from kraftpb.v1.admin_pb2 import AlterConfigsRequest, AlterConfigsResponse, AlteredResource, ConfigAlteration
from kraftpb.v1.metadata_pb2 import ConfigRecord, MetadataRecord
from statemachine.metadata.config_combinations import InheritedConfigs, check_broker_configs, check_topic_configs
from statemachine.metadata.config_resources import (
    check_resource,
    check_resource_type,
)
from statemachine.metadata.state import MetadataState
from statemachine.words.config_definitions import (
    CONFIG_DEFINITIONS,
    MIN_ISR,
    check_config,
    check_unknown_config,
    config_definition,
    invalid_config,
    may_be_stored_unknown,
)
from statemachine.words.config_kinds import join_elements, split_elements, trimmed
from statemachine.words.features import ELIGIBLE_LEADER_REPLICAS
from statemachine.words.limits import check_record_count
from statemachine.words.names import check_name_lengths, quoted
from statemachine.words.repeats import repeats
from statemachine.words.resources import CLUSTER_DEFAULT, ResourceType


def alter_configs(
    state: MetadataState, request: AlterConfigsRequest, *, tiering_enabled: bool = False
) -> tuple[list[MetadataRecord], AlterConfigsResponse]:
    """The records that alter the resources whose alterations are all valid, and an answer for each resource.

    SET and DELETE are about a value, APPEND and SUBTRACT about the elements of one that is a list. A resource is
    altered as a whole or not at all, and must be valid with what it inherits. A broker may have configs that kraftlog
    does not know. No topic becomes tiered unless `tiering_enabled` (TS-81). Setting a topic's config to its present
    value makes no record; a broker's always makes one, which makes the broker load the value again (CT-60). DELETE of
    an unknown config is no error, and makes no record unless the config is set. Raises ApiError(RECORD_LIST_TOO_LARGE)
    if there are too many alterations for one batch (CT-12), INVALID_REQUEST if a name is far too long.
    """
    check_record_count(len(request.alterations))
    check_name_lengths(alteration.resource_name for alteration in request.alterations)
    by_resource: dict[tuple[int, str], list[ConfigAlteration]] = {}
    for alteration in request.alterations:
        by_resource.setdefault((alteration.resource_type, alteration.resource_name), []).append(alteration)
    inherited = InheritedConfigs(state)
    records: list[MetadataRecord] = []
    response = AlterConfigsResponse()
    for (resource_type, resource_name), alterations in by_resource.items():
        answer = AlteredResource(resource_type=resource_type, resource_name=resource_name)
        try:
            records += _alter_resource(state, inherited, resource_type, resource_name, alterations, tiering_enabled)
        except ApiError as error:
            answer.error_code, answer.error_message = error.code, error.args[0]
        response.resources.append(answer)
    return ([] if request.validate_only else records), response


def _check_alterable(
    state: MetadataState, type_number: int, resource_name: str, alterations: Sequence[ConfigAlteration]
) -> ResourceType:
    """As `check_resource`; but the configs of an unregistered broker may be deleted.

    The configs stay, as in Kafka, since the broker may return. Unlike in Kafka, they can be deleted if it does not. A
    topic without a name is INVALID_REQUEST: the default of all topics is a broker's config.
    """
    resource_type = check_resource_type(type_number)
    if resource_type is ResourceType.TOPIC and not resource_name:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "the topic has no name; give one, or for all topics alter the default of all brokers"
            f" (resource type {ResourceType.BROKER.value})",
        )
    if resource_type is ResourceType.BROKER and all(given.kind == ConfigAlteration.DELETE for given in alterations):
        present = state.configs(resource_type, resource_name)
        if all(given.name in present for given in alterations):
            return resource_type
    return check_resource(state, type_number, resource_name)


def _alter_resource(
    state: MetadataState,
    inherited: InheritedConfigs,
    type_number: int,
    resource_name: str,
    alterations: Sequence[ConfigAlteration],
    tiering_enabled: bool,
) -> list[MetadataRecord]:
    resource_type = _check_alterable(state, type_number, resource_name, alterations)
    with about(_shown(resource_type, resource_name)):
        for name in repeats(alteration.name for alteration in alterations):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"config {quoted(name)} is altered more than once")
        before = state.configs(resource_type, resource_name)
        changes = {given.name: _new_value(resource_type, given, before) for given in alterations}
        resulting = {name: value for name, value in {**before, **changes}.items() if value is not None}
        if resource_type is ResourceType.TOPIC:
            check_topic_configs(resulting, before, inherited.of_topics, tiering_enabled=tiering_enabled)
        else:
            _check_min_isr(state, resource_name, changes)
            check_broker_configs(resulting, inherited.of_broker(resource_name))
    return [
        _config_record(resource_type, resource_name, name, value)
        for name, value in changes.items()
        if value != before.get(name) or _is_written_again(resource_type, name)
    ]


def _is_written_again(resource_type: ResourceType, name: str) -> bool:
    """Whether the record makes a broker load the value again (CT-60): no broker loads an unknown config."""
    return resource_type is ResourceType.BROKER and name in CONFIG_DEFINITIONS[resource_type]


def _check_min_isr(state: MetadataState, resource_name: str, changes: Mapping[str, str | None]) -> None:
    """Raise ApiError(INVALID_CONFIG) if a broker gets a min.insync.replicas of its own while KIP-966 is in use.

    With a lower value than the controller knows, a smaller ISR commits records that the eligible replicas lack, and
    such a replica could still be elected. A value that is set already may be deleted.
    """
    is_own = resource_name != CLUSTER_DEFAULT and changes.get(MIN_ISR) is not None
    if is_own and state.features().get(ELIGIBLE_LEADER_REPLICAS, 0) > 0:
        raise invalid_config(
            f"{MIN_ISR}={changes[MIN_ISR]} cannot be one broker's own while {ELIGIBLE_LEADER_REPLICAS} is on; set it"
            " for all brokers, or for topics"
        )


def _shown(resource_type: ResourceType, resource_name: str) -> str:
    """A resource as messages name it."""
    if resource_type is ResourceType.TOPIC:
        return f"topic {quoted(resource_name)}"
    return "the default of all brokers" if resource_name == CLUSTER_DEFAULT else f"broker {resource_name}"


def _config_record(resource_type: ResourceType, resource_name: str, name: str, value: str | None) -> MetadataRecord:
    config = ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=name, value=value)
    return MetadataRecord(config=config)


def _new_value(resource_type: ResourceType, alteration: ConfigAlteration, present: Mapping[str, str]) -> str | None:
    """The value after the alteration, None for no value; raises ApiError(INVALID_CONFIG)."""
    match alteration.kind:
        case ConfigAlteration.SET:
            if may_be_stored_unknown(resource_type, alteration.name):
                check_unknown_config(alteration.name, alteration.value)
                return alteration.value
            check_config(resource_type, alteration.name, alteration.value)
            return trimmed(alteration.value)
        case ConfigAlteration.DELETE:
            return None  # also for an unknown config: deleting what is not set succeeds, as in Kafka
        case ConfigAlteration.APPEND | ConfigAlteration.SUBTRACT:
            return _new_list(resource_type, alteration, present.get(alteration.name))
    raise ApiError(
        ErrorCode.INVALID_REQUEST,
        f"{alteration.kind} is not a kind of alteration; use 0 (SET), 1 (DELETE), 2 (APPEND) or 3 (SUBTRACT)",
    )


def _new_list(resource_type: ResourceType, alteration: ConfigAlteration, present: str | None) -> str | None:
    """The list with the elements added or removed; where none is set, the default's. `present` if nothing changes.

    Raises ApiError(INVALID_CONFIG) if the config is not a list or the result is not valid.
    """
    definition = config_definition(resource_type, alteration.name)
    is_append = alteration.kind == ConfigAlteration.APPEND
    if not definition.is_list:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"the {resource_type.name.lower()} config {alteration.name} is not a list: its value"
            f" {quoted(alteration.value)} cannot be {'appended' if is_append else 'subtracted'}; use SET",
        )
    before = split_elements(definition.default if present is None else present)
    given = dict.fromkeys(split_elements(alteration.value))
    if is_append:
        there = set(before)
        after = before + [element for element in given if element not in there]
    else:
        after = [element for element in before if element not in given]
    if after == before:
        return present
    value = join_elements(after)
    check_config(resource_type, alteration.name, value)
    return value
