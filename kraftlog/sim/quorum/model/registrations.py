"""The registrations of brokers and controllers: a part of `kraftlog.sim.quorum.model.metadata`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from kraftpb.v1.metadata_pb2 import RegisterBrokerRecord, RegisterControllerRecord


class Listener(NamedTuple):
    """The address of a listener."""

    name: str
    host: str
    port: int
    security_protocol: int
    """Kafka's number of the protocol."""


class SupportedLevels(NamedTuple):
    """The supported levels of one feature."""

    name: str
    min_level: int
    max_level: int


@dataclass(frozen=True, slots=True)
class Broker:
    """One registration of a broker."""

    epoch: int
    incarnation_id: bytes
    rack: str | None
    listeners: tuple[Listener, ...]
    features: tuple[SupportedLevels, ...]
    fenced: bool
    shutting_down: bool
    log_dirs: tuple[bytes, ...]
    unclean_shutdown: bool
    last_unfenced_epoch: int | None
    older_log_dirs: tuple[bytes, ...]
    unfenced_log_dirs: tuple[tuple[bytes, int], ...]
    full_log_dirs: tuple[bytes, ...]

    @property
    def is_active(self) -> bool:
        """Whether the broker may lead and be in an ISR."""
        return not self.fenced and not self.shutting_down


@dataclass(frozen=True, slots=True)
class Controller:
    """One registration of a controller."""

    incarnation_id: bytes
    listeners: tuple[Listener, ...]
    features: tuple[SupportedLevels, ...]


def registered_broker(record: RegisterBrokerRecord) -> Broker:
    """Return the broker that a registration record describes."""
    return Broker(
        epoch=record.broker_epoch,
        incarnation_id=record.incarnation_id,
        rack=record.rack if record.HasField("rack") else None,
        listeners=_listeners(record),
        features=_features(record),
        fenced=record.fenced,
        shutting_down=record.in_controlled_shutdown,
        log_dirs=tuple(record.log_dirs),
        unclean_shutdown=record.unclean_shutdown,
        last_unfenced_epoch=record.last_unfenced_epoch if record.HasField("last_unfenced_epoch") else None,
        older_log_dirs=tuple(record.older_log_dirs),
        unfenced_log_dirs=tuple((directory.id, directory.broker_epoch) for directory in record.unfenced_log_dirs),
        full_log_dirs=tuple(record.full_log_dirs),
    )


def registered_controller(record: RegisterControllerRecord) -> Controller:
    """Return the controller that a registration record describes."""
    return Controller(record.incarnation_id, _listeners(record), _features(record))


def _listeners(record: Any) -> tuple[Listener, ...]:
    return tuple(
        Listener(end_point.name, end_point.host, end_point.port, end_point.security_protocol)
        for end_point in record.end_points
    )


def _features(record: Any) -> tuple[SupportedLevels, ...]:
    return tuple(SupportedLevels(feature.name, feature.min_level, feature.max_level) for feature in record.features)
