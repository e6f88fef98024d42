"""UpdateFeatures: from a request and the latest state to records and an answer, and what is told about features.

Nothing changes here.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

from kraftpb.v1.admin_pb2 import (
    FeatureDescription,
    FeatureResult,
    FeatureUpdate,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from kraftpb.v1.metadata_pb2 import (
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)
from raft.core.errors import ErrorCode, ProtocolError
from statemachine.cluster_tables import BROKERS, CONTROLLERS, FEATURES
from statemachine.config_definitions import MIN_ISR
from statemachine.features import (
    CONTROLLER_REGISTRATION,
    ELIGIBLE_LEADER_REPLICAS,
    METADATA_VERSION,
    METADATA_VERSION_NAMES,
    SUPPORTED,
    FeatureRange,
)
from statemachine.limits import RECORDS_PER_BATCH_MAX, check_record_count
from statemachine.names import check_name_lengths, quoted
from statemachine.operations.topics import repeats
from statemachine.record_versions import METADATA_VERSION_DIRECTORIES, METADATA_VERSION_ELR
from statemachine.resources import ResourceType
from statemachine.state import MetadataState

OFF: Final = 0

REQUIRED_METADATA_VERSION: Final[dict[str, int]] = {ELIGIBLE_LEADER_REPLICAS: METADATA_VERSION_ELR}
"""The metadata.version without which a feature cannot be on: records have no place for what it does."""

NEVER_OFF: Final = (METADATA_VERSION,)


# --- UpdateFeatures ---------------------------------------------------------------------------------------------------


def update_features(
    state: MetadataState,
    request: UpdateFeaturesRequest,
    other_voter_ids: Collection[int] = (),
    *,
    partitions_in_directories: bool = False,
) -> tuple[list[MetadataRecord], UpdateFeaturesResponse]:
    """The records that set the levels that change, and an answer for each update, in their order (CT-61).

    `other_voter_ids` are the voters besides this node: what one supports is not known before it has registered.
    `partitions_in_directories` is whether any are: to be looked up before if the request `may_lose_directories`. All
    updates are made or none: one that is refused has the error INVALID_UPDATE_VERSION, and so have all others with it.
    A feature that has the level already makes no record. Raises ProtocolError(INVALID_REQUEST) if a feature is named
    more than once or by a far too long name, RECORD_LIST_TOO_LARGE if there are too many updates, or brokers with a
    min.insync.replicas of their own, for one batch.
    """
    check_record_count(len(request.updates))
    check_name_lengths(update.name for update in request.updates)
    for name in repeats(update.name for update in request.updates):
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"feature {quoted(name)} is updated more than once; do it once")
    present = state.features() | {METADATA_VERSION: state.metadata_version}
    proposed = present | {update.name: update.level for update in request.updates}
    refusals = {
        update.name: _refusal(state, update, present, proposed, other_voter_ids, partitions_in_directories)
        for update in request.updates
    }
    first_refused = next((name for name, refusal in refusals.items() if refusal is not None), None)
    if first_refused is not None:
        with_it = f"was not updated: {quoted(first_refused)} is refused, and all are updated or none"
        results = [_refused(name, refusal or f"{name} {with_it}") for name, refusal in refusals.items()]
        return [], UpdateFeaturesResponse(features=results)
    records = _before_eligible_leaders(state, present, proposed)
    records += [
        MetadataRecord(feature_level=FeatureLevelRecord(name=update.name, level=update.level))
        for update in request.updates
        if update.level != present.get(update.name, OFF)
    ]
    response = UpdateFeaturesResponse(features=[FeatureResult(name=update.name) for update in request.updates])
    return ([] if request.validate_only else records), response


def _before_eligible_leaders(
    state: MetadataState, present: Mapping[str, int], proposed: Mapping[str, int]
) -> list[MetadataRecord]:
    """What has to go before replicas out of the ISR may be eligible to lead: the brokers' own min.insync.replicas.

    By a lower one than the controller knows a smaller ISR could commit what they lack (KIP-966). Where no default of
    all is set Kafka's controller sets its own file's: this one goes by 1 then, and no broker by less, so it need not.
    Raises ProtocolError(RECORD_LIST_TOO_LARGE).
    """
    if proposed.get(ELIGIBLE_LEADER_REPLICAS, OFF) == OFF or present.get(ELIGIBLE_LEADER_REPLICAS, OFF) != OFF:
        return []
    broker_names = state.brokers_with_own(MIN_ISR)
    if len(broker_names) + len(proposed) > RECORDS_PER_BATCH_MAX:
        raise ProtocolError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"{len(broker_names)} brokers have their own {MIN_ISR}, which would be deleted with the update; at most"
            f" {RECORDS_PER_BATCH_MAX} records fit one batch: delete some of them before",
        )
    removed = [
        ConfigRecord(resource_type=ResourceType.BROKER, resource_name=name, name=MIN_ISR) for name in broker_names
    ]
    return [MetadataRecord(config=config) for config in removed]


def _refused(name: str, reason: str) -> FeatureResult:
    return FeatureResult(name=name, error_code=ErrorCode.INVALID_UPDATE_VERSION, error_message=reason)


def _refusal(
    state: MetadataState,
    update: FeatureUpdate,
    present: Mapping[str, int],
    proposed: Mapping[str, int],
    other_voter_ids: Collection[int],
    partitions_in_directories: bool,
) -> str | None:
    """Why the update cannot be made, if it cannot."""
    return (
        _out_of_range(update)
        or _wrong_direction(update, present.get(update.name, OFF))
        or _unsupported(state, update, other_voter_ids)
        or _contradiction(proposed)
        or _loss(state, update, present.get(update.name, OFF), partitions_in_directories)
    )


def _out_of_range(update: FeatureUpdate) -> str | None:
    supported = next((of for of in SUPPORTED if of.name == update.name), None)
    if supported is None:
        known = ", ".join(of.name for of in SUPPORTED)
        return f"there is no feature {quoted(update.name)}; there are {known}"
    if update.level == OFF and update.name not in NEVER_OFF:
        return None
    # A range that begins with 0 says that the feature may be off.
    least = max(supported.min_level, 1)
    if not least <= update.level <= supported.max_level:
        off = "" if update.name in NEVER_OFF else ", or 0 for off"
        return f"{update.name} cannot be {update.level}; this cluster has levels {least} to {supported.max_level}{off}"
    return None


def _wrong_direction(update: FeatureUpdate, present_level: int) -> str | None:
    what = f"{_shown(update.name, update.level)} is"
    match update.upgrade_type:
        case FeatureUpdate.UPGRADE:
            if update.level < present_level:
                return f"{what} below the present {present_level}; ask for a safe downgrade if that is meant"
        case FeatureUpdate.SAFE_DOWNGRADE:
            if update.level > present_level:
                return f"{what} above the present {present_level}, no downgrade; ask for an upgrade"
        case FeatureUpdate.UNSAFE_DOWNGRADE if update.name == METADATA_VERSION:
            return f"unsafe downgrades such as {update.name} to {update.level} are disabled; ask for a safe one"
        case FeatureUpdate.UNSAFE_DOWNGRADE:
            if update.level > present_level:
                return f"{what} above the present {present_level}, no downgrade; ask for an upgrade"
        case unknown:
            return f"{unknown} is no type of upgrade; use 1 (upgrade), 2 (safe downgrade) or 3 (unsafe downgrade)"
    return None


def _unsupported(state: MetadataState, update: FeatureUpdate, other_voter_ids: Collection[int]) -> str | None:
    """Every node must understand what the level brings; all can do without a feature that is off."""
    if update.level == OFF:
        return None
    for what, ranges in _registered(state.brokers().values(), state.controllers().values()):
        least, most = ranges.get(update.name, (OFF, OFF))
        if not least <= update.level <= most:
            supports = f"levels {least} to {most}" if most else "none of its levels"
            shown = _shown(update.name, update.level)
            mend = "upgrade or unregister" if what.startswith("broker") else "upgrade"  # it registers at its next start
            return f"{shown} is not possible: {what} supports {supports}; {mend} it first"
    return _unregistered(state, update, other_voter_ids)


def _unregistered(state: MetadataState, update: FeatureUpdate, other_voter_ids: Collection[int]) -> str | None:
    """Some voter of which nothing is known; below the metadata.version from which they register, none is asked."""
    unknown = sorted(set(other_voter_ids) - set(state.controllers()))
    if state.metadata_version < CONTROLLER_REGISTRATION or not unknown:
        return None
    return (
        f"{_shown(update.name, update.level)} is not possible: controller {unknown[0]} has not registered, and may not"
        " support it; start it and wait until it is registered"
    )


def _contradiction(proposed: Mapping[str, int]) -> str | None:
    """Features must go together at the levels that they would all have after the request."""
    metadata_version = proposed[METADATA_VERSION]
    for name, required in REQUIRED_METADATA_VERSION.items():
        if proposed.get(name, OFF) != OFF and metadata_version < required:
            return (
                f"{name}={proposed[name]} needs {_shown(METADATA_VERSION, required)} at least,"
                f" which would be {metadata_version}; upgrade {METADATA_VERSION} or set {name} to 0 with it"
            )
    return None


def _shown(name: str, level: int) -> str:
    release = METADATA_VERSION_NAMES.get(level) if name == METADATA_VERSION else None
    return f"{name}={level}" + (f" ({release})" if release is not None else "")


# --- what a downgrade would lose --------------------------------------------------------------------------------------


def _loss(
    state: MetadataState, update: FeatureUpdate, present_level: int, partitions_in_directories: bool
) -> str | None:
    """What is there that records at the lower level have no place for, if anything that a safe downgrade must keep."""
    if update.upgrade_type == FeatureUpdate.UNSAFE_DOWNGRADE:
        return None
    for name, level, what, is_in_use in _LOSSES:
        if update.name == name and update.level < level <= present_level and is_in_use(state):
            return _would_lose(update, what, level)
    if partitions_in_directories and _gives_up_directories(update, present_level):
        return _would_lose(update, "partitions are in log directories", METADATA_VERSION_DIRECTORIES)
    return None


def _would_lose(update: FeatureUpdate, what: str, level: int) -> str:
    lost = f"{_shown(update.name, update.level)} would lose metadata: {what}"
    return f"{lost}; that needs {_shown(update.name, level)} or above"


def _gives_up_directories(update: FeatureUpdate, present_level: int) -> bool:
    return update.name == METADATA_VERSION and update.level < METADATA_VERSION_DIRECTORIES <= present_level


def may_lose_directories(state: MetadataState, request: UpdateFeaturesRequest) -> bool:
    """Whether it depends on all partitions if the updates can be made: those may be in log directories (CT-61)."""
    return any(_gives_up_directories(update, state.metadata_version) for update in request.updates)


def _has_controllers(state: MetadataState) -> bool:
    return bool(state.controllers())


def _has_log_dirs(state: MetadataState) -> bool:
    return any(broker.log_dirs for broker in state.brokers().values())


def _has_eligible_leaders(state: MetadataState) -> bool:
    return bool(state.partitions_with_elr(limit=1))


_LOSSES: Final[tuple[tuple[str, int, str, Callable[[MetadataState], bool]], ...]] = (
    (METADATA_VERSION, CONTROLLER_REGISTRATION, "controllers are registered", _has_controllers),
    (METADATA_VERSION, METADATA_VERSION_DIRECTORIES, "brokers have log directories", _has_log_dirs),
    (METADATA_VERSION, METADATA_VERSION_ELR, "partitions have eligible leader replicas", _has_eligible_leaders),
    # Who is eligible has all that is committed, though not in the ISR: forgotten, it could be lost with the ISR.
    (ELIGIBLE_LEADER_REPLICAS, 1, "partitions have eligible leader replicas", _has_eligible_leaders),
)
"""A feature, the level that brought a kind of record or a field, what that is, and whether it is in use (CT-61).

Whether partitions are in log directories takes a look at all of them, and so is an argument.
What came with other levels leaves nothing behind: transactions end, and fetches are not metadata.
"""


# --- DescribeFeatures -------------------------------------------------------------------------------------------------


def describe_features(connection: sqlite3.Connection) -> list[FeatureDescription]:
    """The features that this program knows, by name, and the levels that all nodes support.

    0 to 0 if there is no level that all registered brokers and controllers support.
    """
    finalized = {feature.name: feature.level for _, feature in FEATURES.find(connection)}
    brokers = [broker for _, broker in BROKERS.find(connection)]
    controllers = [controller for _, controller in CONTROLLERS.find(connection)]
    ranges = [of_node for _, of_node in _registered(brokers, controllers)]
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


def _registered(
    brokers: Iterable[RegisterBrokerRecord], controllers: Iterable[RegisterControllerRecord]
) -> Iterator[tuple[str, dict[str, tuple[int, int]]]]:
    """Every registered node as messages name it, and the levels of each feature that it supports."""
    for broker in brokers:
        yield f"broker {broker.broker_id}", {of.name: (of.min_level, of.max_level) for of in broker.features}
    for controller in controllers:
        ranges = {of.name: (of.min_level, of.max_level) for of in controller.features}
        yield f"controller {controller.controller_id}", ranges
