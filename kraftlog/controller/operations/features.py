"""UpdateFeatures: from a request and the latest state to records and an answer; and what is reported about features.

Nothing changes here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from kraftbase.errors import ApiError, ErrorCode
from kraftpb.v1.admin_pb2 import (
    FeatureResult,
    FeatureUpdate,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from kraftpb.v1.metadata_pb2 import (
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
)
from statemachine.metadata.state import MetadataState
from statemachine.query.features import OFF, registered_ranges
from statemachine.words.config_definitions import MIN_ISR
from statemachine.words.features import (
    CONTROLLER_REGISTRATION,
    ELIGIBLE_LEADER_REPLICAS,
    METADATA_VERSION,
    METADATA_VERSION_NAMES,
    SUPPORTED,
)
from statemachine.words.limits import RECORDS_PER_BATCH_MAX, check_record_count
from statemachine.words.names import check_name_lengths, quoted
from statemachine.words.record_versions import (
    METADATA_VERSION_CORDONED_DIRECTORIES,
    METADATA_VERSION_DIRECTORIES,
    METADATA_VERSION_ELR,
)
from statemachine.words.repeats import repeats
from statemachine.words.resources import ResourceType

REQUIRED_METADATA_VERSION: Final[dict[str, int]] = {ELIGIBLE_LEADER_REPLICAS: METADATA_VERSION_ELR}
"""The metadata.version without which a feature cannot be on: records have no field for its data."""

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

    `other_voter_ids` are the voters except this node: their features are not known before they register.
    `partitions_in_directories` is whether any partitions are in directories: the caller must look it up first if the
    request `may_lose_directories`. All updates are made or none: if one is refused, every result has the error
    INVALID_UPDATE_VERSION. A feature that already has the level makes no record. Raises ApiError(INVALID_REQUEST) if a
    feature is named more than once or by a far too long name, RECORD_LIST_TOO_LARGE if there are too many updates, or
    brokers with a min.insync.replicas of their own, for one batch.
    """
    check_record_count(len(request.updates))
    check_name_lengths(update.name for update in request.updates)
    for name in repeats(update.name for update in request.updates):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"feature {quoted(name)} is updated more than once; do it once")
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
    """The configs to delete before replicas out of the ISR may be eligible to lead: each broker's own
    min.insync.replicas. With a lower value than the controller knows, a smaller ISR could commit records that they lack
    (KIP-966). Where no default for all is set, Kafka's controller sets the one of its own file. This one uses 1 then,
    and no broker uses less, so it need not. Raises ApiError(RECORD_LIST_TOO_LARGE).
    """
    if proposed.get(ELIGIBLE_LEADER_REPLICAS, OFF) == OFF or present.get(ELIGIBLE_LEADER_REPLICAS, OFF) != OFF:
        return []
    broker_names = state.brokers_with_own(MIN_ISR)
    if len(broker_names) + len(proposed) > RECORDS_PER_BATCH_MAX:
        raise ApiError(
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
    """Why the update cannot be made; None if it can."""
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
    # A range that begins with 0 means that the feature may be off.
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
                return f"{what} below the present {present_level}; request a safe downgrade if this is intended"
        case FeatureUpdate.SAFE_DOWNGRADE:
            if update.level > present_level:
                return f"{what} above the present {present_level}, not a downgrade; request an upgrade"
        case FeatureUpdate.UNSAFE_DOWNGRADE if update.name == METADATA_VERSION:
            return f"unsafe downgrades such as {update.name} to {update.level} are disabled; request a safe one"
        case FeatureUpdate.UNSAFE_DOWNGRADE:
            if update.level > present_level:
                return f"{what} above the present {present_level}, not a downgrade; request an upgrade"
        case unknown:
            return f"{unknown} is not a type of upgrade; use 1 (upgrade), 2 (safe downgrade) or 3 (unsafe downgrade)"
    return None


def _unsupported(state: MetadataState, update: FeatureUpdate, other_voter_ids: Collection[int]) -> str | None:
    """Every node must understand what the level introduces; all can do without a feature that is off."""
    if update.level == OFF:
        return None
    for what, ranges in registered_ranges(state.brokers().values(), state.controllers().values()):
        least, most = ranges.get(update.name, (OFF, OFF))
        if not least <= update.level <= most:
            supports = f"levels {least} to {most}" if most else "none of its levels"
            shown = _shown(update.name, update.level)
            mend = "upgrade or unregister" if what.startswith("broker") else "upgrade"  # it registers at its next start
            return f"{shown} is not possible: {what} supports {supports}; {mend} it first"
    return _unregistered(state, update, other_voter_ids)


def _unregistered(state: MetadataState, update: FeatureUpdate, other_voter_ids: Collection[int]) -> str | None:
    """Raise an error for a voter that has not registered; below the metadata.version with controller registrations, no
    voter is checked.
    """
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
    """The metadata in use that a safe downgrade would lose, since records at the lower level have no field for it."""
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
    """Whether the updates depend on all partitions, which may be in log directories (CT-61)."""
    return any(_gives_up_directories(update, state.metadata_version) for update in request.updates)


def _has_controllers(state: MetadataState) -> bool:
    return bool(state.controllers())


def _has_log_dirs(state: MetadataState) -> bool:
    return any(broker.log_dirs for broker in state.brokers().values())


def _has_cordoned_log_dirs(state: MetadataState) -> bool:
    return any(broker.cordoned_log_dirs for broker in state.brokers().values())


def _has_eligible_leaders(state: MetadataState) -> bool:
    return bool(state.partitions_with_elr(limit=1))


_LOSSES: Final[tuple[tuple[str, int, str, Callable[[MetadataState], bool]], ...]] = (
    (METADATA_VERSION, CONTROLLER_REGISTRATION, "controllers are registered", _has_controllers),
    (METADATA_VERSION, METADATA_VERSION_DIRECTORIES, "brokers have log directories", _has_log_dirs),
    (METADATA_VERSION, METADATA_VERSION_ELR, "partitions have eligible leader replicas", _has_eligible_leaders),
    (
        METADATA_VERSION,
        METADATA_VERSION_CORDONED_DIRECTORIES,
        "brokers have cordoned log directories",
        _has_cordoned_log_dirs,
    ),
    # An eligible replica has all committed records without being in the ISR: if it were forgotten, they could be lost
    # with the ISR.
    (ELIGIBLE_LEADER_REPLICAS, 1, "partitions have eligible leader replicas", _has_eligible_leaders),
)
"""A feature, the level that brought a kind of record or a field, what that is, and whether it is in use (CT-61).

Whether partitions are in log directories takes a search of all of them, and so is an argument.
What other levels introduced leaves nothing behind: transactions end, and fetches are not metadata.
"""


# --- DescribeFeatures -------------------------------------------------------------------------------------------------
