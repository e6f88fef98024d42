"""RegisterBroker: from a request and the latest state to a record and an answer. Nothing is changed here.

Brokers do not send heartbeats yet, so nothing could unfence one: a broker is registered unfenced and may take
partitions at once, and another incarnation replaces a registration without asking whether the one before still lives.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from kraftpb.v1.admin_pb2 import RegisterBrokerRequest, RegisterBrokerResponse
from kraftpb.v1.metadata_pb2 import BrokerEndpoint, MetadataRecord, RegisterBrokerRecord
from raft.core.errors import ErrorCode, ProtocolError
from raft.core.types import Offset
from statemachine.ids import ID_BYTES, id_to_text, is_reserved
from statemachine.names import quoted
from statemachine.overlay import Overlay
from statemachine.topic_operations import repeats

HOST_LENGTH_MAX: Final = 255
LISTENER_NAME_LENGTH_MAX: Final = 249
RACK_LENGTH_MAX: Final = 249
LISTENERS_MAX: Final = 100
LOG_DIRS_MAX: Final = 1_000


def register_broker(
    state: Overlay, request: RegisterBrokerRequest, cluster_id: str, base_offset: Offset
) -> tuple[list[MetadataRecord], RegisterBrokerResponse]:
    """The record that registers the broker, if its append starts at `base_offset`, and the broker's epoch.

    The epoch is the offset of the record. The same incarnation keeps its epoch and its state, and makes no record if
    nothing is new. Raises ProtocolError as table 5.3 of Kafka's rules says.
    """
    if request.HasField("cluster_id") and request.cluster_id != cluster_id:
        raise ProtocolError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"this is cluster {cluster_id}, not {quoted(request.cluster_id)}; check the address",
        )
    _check_identity(request)
    _check_listeners(request.listeners)
    registered = state.brokers()
    _check_log_dirs(request, registered.values())
    present = registered.get(request.broker_id)
    record = RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=base_offset,
        end_points=request.listeners,
        rack=request.rack if request.HasField("rack") else None,
        log_dirs=request.log_dirs,
    )
    if present is not None and present.incarnation_id == request.incarnation_id:
        record.broker_epoch = present.broker_epoch
        record.fenced = present.fenced
        record.in_controlled_shutdown = present.in_controlled_shutdown
    records = [] if record == present else [MetadataRecord(register_broker=record)]
    return records, RegisterBrokerResponse(broker_epoch=record.broker_epoch)


def _check_identity(request: RegisterBrokerRequest) -> None:
    if request.broker_id < 0:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"the broker id is {request.broker_id}; it must be 0 or more")
    if len(request.incarnation_id) != ID_BYTES or is_reserved(request.incarnation_id):
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "the incarnation id must be a random uuid, 16 bytes")
    if request.HasField("rack") and not 0 < len(request.rack) <= RACK_LENGTH_MAX:
        raise ProtocolError(
            ErrorCode.INVALID_REQUEST, f"the rack must have 1 to {RACK_LENGTH_MAX} characters, or be left out"
        )


def _check_listeners(listeners: Sequence[BrokerEndpoint]) -> None:
    if not 0 < len(listeners) <= LISTENERS_MAX:
        raise _invalid(f"the broker has {len(listeners)} listeners; give 1 to {LISTENERS_MAX}")
    for name in repeats(listener.name for listener in listeners):
        raise _invalid(f"two listeners are named {quoted(name)}; each needs a name of its own")
    for listener in listeners:
        if not 0 < len(listener.name) <= LISTENER_NAME_LENGTH_MAX:
            raise _invalid(f"a listener's name must have 1 to {LISTENER_NAME_LENGTH_MAX} characters")
        if not 0 < len(listener.host) <= HOST_LENGTH_MAX or not 0 < listener.port < 65536:
            raise _invalid(
                f"nobody can reach listener {quoted(listener.name)} at host {quoted(listener.host)}, port"
                f" {listener.port}; give a host name and a port from 1 to 65535"
            )


def _check_log_dirs(request: RegisterBrokerRequest, registered: Iterable[RegisterBrokerRecord]) -> None:
    log_dirs = request.log_dirs
    if not 0 < len(log_dirs) <= LOG_DIRS_MAX:
        raise _invalid(f"the broker has {len(log_dirs)} log directories; give 1 to {LOG_DIRS_MAX}")
    for log_dir in log_dirs:
        if len(log_dir) != ID_BYTES or is_reserved(log_dir):
            raise _invalid(f"{log_dir[:32].hex()} is no log directory's id; it must be a random uuid, 16 bytes")
    if len(set(log_dirs)) != len(log_dirs):
        raise _invalid("a log directory is in the list more than once")
    for broker in registered:
        for log_dir in set(log_dirs) & set(broker.log_dirs) if broker.broker_id != request.broker_id else ():
            raise _invalid(f"log directory {id_to_text(log_dir)} is broker {broker.broker_id}'s; each has its own")


def _invalid(reason: str) -> ProtocolError:
    return ProtocolError(ErrorCode.INVALID_REGISTRATION, reason)
