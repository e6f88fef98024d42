"""Brokers and controllers register, brokers are fenced and leave: from a request and the latest state to records.

Nothing changes here. A broker that leaves must leave the ISRs too (CT-31): the caller makes those records. It also
ensures that a registration comes first in its append, as its offset is the broker's epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.ids import ID_BYTES, id_to_text, is_reserved
from kraftbase.sentinels import UNKNOWN_EPOCH
from kraftbase.types import Offset
from kraftpb.v1.admin_pb2 import (
    FenceBrokerRequest,
    FenceBrokerResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    RegisterControllerRequest,
    RegisterControllerResponse,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from kraftpb.v1.metadata_pb2 import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    DirectoryIds,
    LogDirEpoch,
    MetadataRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    SupportedFeature,
    UnregisterBrokerRecord,
)
from statemachine.metadata.state import MetadataState
from statemachine.words.adopted_brokers import is_awaited
from statemachine.words.features import CONTROLLER_REGISTRATION, METADATA_VERSION, METADATA_VERSION_NAMES
from statemachine.words.names import quoted
from statemachine.words.record_versions import METADATA_VERSION_DIRECTORIES, in_version
from statemachine.words.repeats import repeats
from statemachine.words.unfenced_log_dirs import used_unfenced

BROKERS_SHOWN: Final = 10
"""At most this many registered brokers are named in the error about an unknown broker."""

HOST_LENGTH_MAX: Final = 255
LISTENER_NAME_LENGTH_MAX: Final = 249
RACK_LENGTH_MAX: Final = 249
FEATURE_NAME_LENGTH_MAX: Final = 249
LISTENERS_MAX: Final = 100
LOG_DIRS_MAX: Final = 1_000
LOG_DIRS_SHOWN: Final = 10
FEATURES_MAX: Final = 100
LEVEL_MAX: Final = 2**15 - 1
"""Kafka's records have levels of 16 bits."""


# --- RegisterBroker ---------------------------------------------------------------------------------------------------


class Registration(NamedTuple):
    """The result of a registration."""

    records: list[MetadataRecord]
    """The registration, or empty if nothing has changed."""
    response: RegisterBrokerResponse
    is_new_incarnation: bool
    """The broker is now fenced. If it was already known, it must leave the ISRs, and has no session."""
    had_unclean_shutdown: bool
    """The broker was already known and may have lost records: it must leave the eligible leader replicas, too
    (KIP-966).
    """
    older_log_dirs: frozenset[bytes] = frozenset()
    """Its log directories that are older copies: replicas in them are neither in sync nor eligible (CT-38)."""


def register_broker(
    state: MetadataState, request: RegisterBrokerRequest, cluster_id: str, base_offset: Offset, has_session: bool
) -> Registration:
    """The record that registers the broker, which must be the first of its append, at `base_offset` (CT-33).

    Its offset is the broker's epoch. The same incarnation keeps its epoch and its state. `has_session` is whether the
    registered one still sends heartbeats. Raises ApiError: INCONSISTENT_CLUSTER_ID, DUPLICATE_BROKER_REGISTRATION,
    UNSUPPORTED_VERSION if it does not support the cluster's features, INVALID_REGISTRATION (also if the cluster was
    restored, and has not adopted the broker: CT-39), INVALID_REQUEST.
    """
    if request.HasField("cluster_id") and request.cluster_id != cluster_id:
        raise ApiError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"broker {request.broker_id} cannot register: this is cluster {cluster_id}, not"
            f" {quoted(request.cluster_id)}; check the address",
        )
    _check_broker_identity(request)
    who = f"broker {request.broker_id}"
    present = state.broker(request.broker_id)
    is_new_incarnation = present is None or present.incarnation_id != request.incarnation_id
    if present is not None and is_new_incarnation and has_session:
        raise ApiError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"{who} is registered and alive as incarnation {id_to_text(present.incarnation_id)}; stop that"
            " incarnation and try again when its session has expired, or choose another id",
        )
    _check_listeners(who, request.listeners)
    _check_log_dir_epochs(request)
    if present is not None and is_new_incarnation:
        _check_adopted(request, present)
    if state.metadata_version >= METADATA_VERSION_DIRECTORIES:
        _check_log_dirs(request, state.brokers().values())
    _check_features(state, who, request.features)
    record = RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=base_offset,
        end_points=request.listeners,
        rack=request.rack if request.HasField("rack") else None,
        fenced=True,
        log_dirs=request.log_dirs,
        features=request.features,
    )
    record.unclean_shutdown = present is not None and (
        present.unclean_shutdown or not _was_shut_down_cleanly(request, present)
    )
    if request.log_dir_epochs and is_new_incarnation:
        record.last_unfenced_epoch = _last_unfenced_epoch(present)
        record.older_log_dirs.extend(_older_log_dirs(request, present))
        record.unfenced_log_dirs.extend(_unfenced_log_dirs(present))
    if present is not None and not is_new_incarnation:
        record.broker_epoch = present.broker_epoch
        record.fenced = present.fenced
        record.in_controlled_shutdown = present.in_controlled_shutdown
        record.unclean_shutdown = present.unclean_shutdown
        record.older_log_dirs.extend(present.older_log_dirs)
        record.unfenced_log_dirs.extend(present.unfenced_log_dirs)
        if present.HasField("last_unfenced_epoch"):
            record.last_unfenced_epoch = present.last_unfenced_epoch
    written = in_version(MetadataRecord(register_broker=record), state.metadata_version)
    return Registration(
        [] if written.register_broker == present else [written],
        RegisterBrokerResponse(broker_epoch=record.broker_epoch, older_log_dirs=record.older_log_dirs),
        is_new_incarnation,
        is_new_incarnation and record.unclean_shutdown,
        frozenset(record.older_log_dirs if is_new_incarnation else ()),
    )


# Consider broker 1, which has records of epochs that are not in the snapshot from which its cluster was restored. It
# would truncate them, and set aside the logs of topics that the snapshot lacks, as if these were deleted. If it was
# adopted it registers first as the incarnation in the metadata; from then on its directories know that epoch.
def _check_adopted(request: RegisterBrokerRequest, present: RegisterBrokerRecord) -> None:
    """Raise ApiError if a restored cluster expects the broker with other disks (CT-39)."""
    if is_awaited(present.incarnation_id) and max(request.log_dir_epochs, default=UNKNOWN_EPOCH) < present.broker_epoch:
        raise _invalid_registration(
            f"broker {request.broker_id} is not adopted: this cluster was restored from a snapshot, and would"
            " truncate the logs on the broker's disks. Nothing was changed; see"
            " docs/operations/all-voters-are-lost.md. If its disks"
            f" are lost or new, `kraftlog brokers unregister --id {request.broker_id}` abandons the records that"
            " they had"
        )


def _was_shut_down_cleanly(request: RegisterBrokerRequest, present: RegisterBrokerRecord) -> bool:
    """Whether the broker's disk shows that its latest incarnation shut down cleanly."""
    return request.HasField("previous_broker_epoch") and request.previous_broker_epoch == present.broker_epoch


def _last_unfenced_epoch(present: RegisterBrokerRecord | None) -> int:
    known = present is not None and present.HasField("last_unfenced_epoch")
    return present.last_unfenced_epoch if known and present is not None else UNKNOWN_EPOCH


# Consider broker 1, which was unfenced with epoch 500, and whose directory was copied then. It registers again with
# epoch 700, is unfenced, and leads. It stops, and the copy is put back: it names 500, and the controller knows 700. Had
# it stayed fenced with 700, it could not have acknowledged anything that the copy lacks. If the controller knows less
# than the broker names, the metadata were restored from a backup: that says nothing about the broker's disk.
def _older_log_dirs(request: RegisterBrokerRequest, present: RegisterBrokerRecord | None) -> list[bytes]:
    """The log directories that are older copies: they do not know the last registration with them in which the broker
    was unfenced. Directories found older in an earlier registration stay older until the broker is unfenced: it may not
    yet have left all of its partitions.
    """
    last_of = {of.id: of.broker_epoch for of in _unfenced_log_dirs(present)}  # nothing is known of any other
    known = set() if present is None or was_unfenced(present) else {*present.older_log_dirs}
    named = zip(request.log_dirs, request.log_dir_epochs, strict=True)
    known |= {log_dir for log_dir, epoch in named if UNKNOWN_EPOCH < epoch < last_of.get(log_dir, UNKNOWN_EPOCH)}
    return [log_dir for log_dir in request.log_dirs if log_dir in known]


# Consider directories A and B, used with epoch 500. The disk of A is not there at a start, and the broker registers
# with epoch 700, with B alone, and is unfenced. When A is back it still has 500, and everything that the broker has
# acknowledged for A's partitions. An older copy of A has 300.
def _unfenced_log_dirs(present: RegisterBrokerRecord | None) -> list[LogDirEpoch]:
    """The last registration with each log directory in which the broker was unfenced, the latest ones first."""
    if present is None or not present.HasField("last_unfenced_epoch"):
        return []
    if not was_unfenced(present):
        return [*present.unfenced_log_dirs]
    return used_unfenced(present, present.log_dirs)


def was_unfenced(broker: RegisterBrokerRecord) -> bool:
    """Whether the broker is known to have been unfenced in its present registration."""
    return broker.HasField("last_unfenced_epoch") and broker.last_unfenced_epoch == broker.broker_epoch


def _check_log_dir_epochs(request: RegisterBrokerRequest) -> None:
    epochs = request.log_dir_epochs
    if epochs and (len(epochs) != len(request.log_dirs) or min(epochs) < UNKNOWN_EPOCH):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"broker {request.broker_id} gives the epochs {[*epochs[:LOG_DIRS_SHOWN]]} for {len(request.log_dirs)} log"
            f" directories; give one for each, {UNKNOWN_EPOCH} or more, or none",
        )


def _check_broker_identity(request: RegisterBrokerRequest) -> None:
    if request.broker_id < 0:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"the broker id is {request.broker_id}; it must be 0 or more")
    _check_incarnation(f"broker {request.broker_id}", request.incarnation_id)
    if request.HasField("rack") and not 0 < len(request.rack) <= RACK_LENGTH_MAX:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"the rack of broker {request.broker_id} has {len(request.rack)} characters; it must have 1 to"
            f" {RACK_LENGTH_MAX}, or be left out",
        )


def _check_log_dirs(request: RegisterBrokerRequest, registered: Iterable[RegisterBrokerRecord]) -> None:
    who, log_dirs = f"broker {request.broker_id}", request.log_dirs
    if not 0 < len(log_dirs) <= LOG_DIRS_MAX:
        raise _invalid_registration(f"{who} has {len(log_dirs)} log directories; give 1 to {LOG_DIRS_MAX}")
    for log_dir in log_dirs:
        if len(log_dir) != ID_BYTES or is_reserved(log_dir):
            raise _invalid_registration(
                f"{log_dir[:32].hex()} of {who} is not the id of a log directory; it must be a random uuid, 16 bytes"
            )
    for log_dir in repeats(log_dirs):
        raise _invalid_registration(f"log directory {id_to_text(log_dir)} of {who} is in the list more than once")
    for broker in registered:
        for log_dir in sorted(set(log_dirs) & set(broker.log_dirs)) if broker.broker_id != request.broker_id else ():
            raise _invalid_registration(
                f"{who} cannot have log directory {id_to_text(log_dir)}, which is broker {broker.broker_id}'s; each has"
                " its own"
            )


# --- RegisterController -----------------------------------------------------------------------------------------------


def register_controller(
    state: MetadataState, request: RegisterControllerRequest
) -> tuple[list[MetadataRecord], RegisterControllerResponse]:
    """The record with a controller's features and listeners; none if they are already known (CT-37).

    Raises ApiError: UNSUPPORTED_VERSION if the cluster's metadata.version is below 3.7-IV0 or the controller does
    not support the cluster's features, INVALID_REGISTRATION, INVALID_REQUEST.
    """
    if state.metadata_version < CONTROLLER_REGISTRATION:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"controller {request.controller_id} cannot register: controllers register from metadata.version"
            f" {_version_name(CONTROLLER_REGISTRATION)} on, and the cluster's is"
            f" {_version_name(state.metadata_version)}; upgrade it first",
        )
    if request.controller_id < 0:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"the controller id is {request.controller_id}; it must be 0 or more")
    who = f"controller {request.controller_id}"
    _check_incarnation(who, request.incarnation_id)
    _check_listeners(who, request.end_points)
    _check_features(state, who, request.features)
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        end_points=request.end_points,
        features=request.features,
    )
    if state.controllers().get(request.controller_id) == record:
        return [], RegisterControllerResponse()
    written = in_version(MetadataRecord(register_controller=record), state.metadata_version)
    return [written], RegisterControllerResponse()


def _version_name(level: int) -> str:
    return f"{level} ({METADATA_VERSION_NAMES.get(level, 'unknown here')})"


# --- checks of both ---------------------------------------------------------------------------------------------------


def _check_incarnation(who: str, incarnation_id: bytes) -> None:
    if len(incarnation_id) != ID_BYTES or is_reserved(incarnation_id):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"the incarnation id of {who} is {incarnation_id[:32].hex()!r}; it must be a random uuid, 16 bytes",
        )


def _check_listeners(who: str, listeners: Sequence[BrokerEndpoint]) -> None:
    if not 0 < len(listeners) <= LISTENERS_MAX:
        raise _invalid_registration(f"{who} has {len(listeners)} listeners; give 1 to {LISTENERS_MAX}")
    for name in repeats(listener.name for listener in listeners):
        raise _invalid_registration(f"two listeners of {who} are named {quoted(name)}; each needs a name of its own")
    for listener in listeners:
        if not 0 < len(listener.name) <= LISTENER_NAME_LENGTH_MAX:
            raise _invalid_registration(
                f"a listener of {who} has a name of {len(listener.name)} characters; it must have 1 to"
                f" {LISTENER_NAME_LENGTH_MAX}"
            )
        if not 0 < len(listener.host) <= HOST_LENGTH_MAX or not 0 < listener.port < 65536:
            raise _invalid_registration(
                f"no client can reach listener {quoted(listener.name)} of {who} at host {quoted(listener.host)}, port"
                f" {listener.port}; give a host name and a port from 1 to 65535"
            )


def _check_features(state: MetadataState, who: str, supported: Sequence[SupportedFeature]) -> None:
    """Raise ApiError unless the ranges are valid and include every level that the cluster has finalized."""
    if len(supported) > FEATURES_MAX:
        raise _invalid_registration(f"{who} supports {len(supported)} features; at most {FEATURES_MAX} are accepted")
    for name in repeats(feature.name for feature in supported):
        raise _invalid_registration(f"{who} gives feature {quoted(name)} more than once; give one range of levels")
    for feature in supported:
        if not 0 < len(feature.name) <= FEATURE_NAME_LENGTH_MAX:
            raise _invalid_registration(
                f"{who} supports a feature whose name has {len(feature.name)} characters; it must have 1 to"
                f" {FEATURE_NAME_LENGTH_MAX}"
            )
        if not 0 <= feature.min_level <= feature.max_level <= LEVEL_MAX:
            raise _invalid_registration(
                f"{who} gives the levels {feature.min_level} to {feature.max_level} for feature {quoted(feature.name)};"
                f" they must ascend from 0 or more to at most {LEVEL_MAX}"
            )
    ranges = {feature.name: feature for feature in supported}
    if METADATA_VERSION not in ranges:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{who} does not give the levels of {METADATA_VERSION} that it supports; add them",
        )
    # The metadata.version is checked separately: a log without a record of it also has one.
    for name, level in {METADATA_VERSION: state.metadata_version, **state.features()}.items():
        found = ranges.get(name)
        if found is None or not found.min_level <= level <= found.max_level:
            has = "none of it" if found is None else f"levels {found.min_level} to {found.max_level}"
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the cluster has feature {quoted(name)} at level {level}, and {who} supports {has}; start a version of"
                " it that supports that level",
            )


def _invalid_registration(reason: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REGISTRATION, reason)


# --- fencing and leaving ----------------------------------------------------------------------------------------------


def registered_broker(state: MetadataState, broker_id: int) -> RegisterBrokerRecord:
    """The registration of a broker; raises ApiError(BROKER_ID_NOT_REGISTERED). It must not be changed."""
    broker = state.broker(broker_id)
    if broker is None:
        known = list(state.brokers())
        shown = ", ".join(map(str, known[:BROKERS_SHOWN])) + (" and others" if len(known) > BROKERS_SHOWN else "")
        raise ApiError(
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            f"broker {broker_id} is not registered; registered are {shown or 'none'}",
        )
    return broker


def check_broker_epoch(state: MetadataState, broker_id: int, broker_epoch: int) -> RegisterBrokerRecord:
    """The registration of the broker that claims that epoch; raises ApiError(STALE_BROKER_EPOCH).

    As in Kafka, a broker that is not registered has no epoch, so any that it names is stale.
    """
    broker = state.broker(broker_id)
    if broker is None:
        raise ApiError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {broker_id} names the epoch {broker_epoch}, and it is not registered; register it first",
        )
    if broker.broker_epoch != broker_epoch:
        raise ApiError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {broker_id} names the epoch {broker_epoch}, and its registration has {broker.broker_epoch};"
            " register it again",
        )
    return broker


def unregister_broker(
    state: MetadataState, request: UnregisterBrokerRequest
) -> tuple[list[MetadataRecord], UnregisterBrokerResponse]:
    """The record that removes a broker: the last of those that take it out of every ISR (CT-36).

    Raises ApiError(BROKER_ID_NOT_REGISTERED).
    """
    broker = registered_broker(state, request.broker_id)
    record = UnregisterBrokerRecord(broker_id=broker.broker_id, broker_epoch=broker.broker_epoch)
    written = in_version(MetadataRecord(unregister_broker=record), state.metadata_version)
    return [written], UnregisterBrokerResponse()


def fence_broker(state: MetadataState, request: FenceBrokerRequest) -> tuple[list[MetadataRecord], FenceBrokerResponse]:
    """The record by which an operator fences a broker until its next heartbeat; none if it is fenced.

    The records that take the broker out of ISRs follow it. Raises ApiError(BROKER_ID_NOT_REGISTERED).
    """
    broker = registered_broker(state, request.broker_id)
    records = [] if broker.fenced else [fence_record(broker, state.metadata_version)]
    return records, FenceBrokerResponse()


def fence_record(broker: RegisterBrokerRecord, metadata_version: int) -> MetadataRecord:
    """The record that fences a broker: it leads nothing and is in no ISR (CT-31)."""
    return _change(broker, metadata_version, fenced=True)


def unfence_record(broker: RegisterBrokerRecord, metadata_version: int) -> MetadataRecord:
    """The record that unfences a broker. It ends a shutdown that the broker began before it was fenced."""
    return _change(
        broker, metadata_version, fenced=False, in_controlled_shutdown=False if broker.in_controlled_shutdown else None
    )


def controlled_shutdown_record(broker: RegisterBrokerRecord, metadata_version: int) -> MetadataRecord:
    """The record of a controlled shutdown: the broker no longer gets leaderships or joins ISRs (CT-31)."""
    return _change(broker, metadata_version, in_controlled_shutdown=True)


def directories_record(broker: RegisterBrokerRecord, online: Sequence[bytes], metadata_version: int) -> MetadataRecord:
    """The record with the working log directories of a broker: at least one, since none would mean "not known"."""
    record = _change(broker, metadata_version)
    record.broker_registration_change.log_dirs.ids.extend(online)
    return record


def full_directories_record(
    broker: RegisterBrokerRecord, full: Sequence[bytes], metadata_version: int
) -> MetadataRecord:
    """The record with the log directories of a broker that have no room (CT-66)."""
    record = _change(broker, metadata_version)
    record.broker_registration_change.full_log_dirs.CopyFrom(DirectoryIds(ids=full))
    return record


def _change(
    broker: RegisterBrokerRecord,
    metadata_version: int,
    *,
    fenced: bool | None = None,
    in_controlled_shutdown: bool | None = None,
) -> MetadataRecord:
    record = BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id,
        broker_epoch=broker.broker_epoch,
        fenced=fenced,
        in_controlled_shutdown=in_controlled_shutdown,
    )
    return in_version(MetadataRecord(broker_registration_change=record), metadata_version)
