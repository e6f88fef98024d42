"""The actions of administrators and brokers as data: a sequence of steps means the same on every system.

Steps name topics and brokers, never ids or epochs that a controller has assigned. An epoch is given as a difference
from the current one, so that it is old or future on both systems. Reports contain steps as JSON.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Final, TypeAlias

PREFERRED: Final = 0
UNCLEAN: Final = 1

SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
SUBTRACT: Final = 3

TOPIC: Final = 2
BROKER: Final = 4
"""Kafka's numbers of the types of resources that have configs."""

EXACTLY: Final = "exactly"
TOGGLE: Final = "toggle"
ALL: Final = "all"
ALONE: Final = "alone"

Reassignment: TypeAlias = tuple[str, int, tuple[int, ...] | None]
"""Topic, partition, and its new replicas; None cancels."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be created."""

    name: str
    assignments: tuple[tuple[int, ...], ...] = ()
    """The brokers of each partition. If empty, the controller places the replicas."""
    num_partitions: int = -1
    replication_factor: int = -1
    configs: tuple[tuple[str, str], ...] = ()
    first_partition: int = 0
    """The number of the first assigned partition: anything but 0 leaves a gap."""


@dataclass(frozen=True, slots=True)
class RegisterBroker:
    """A broker starts: each incarnation, a number, is another process."""

    broker_id: int
    incarnation: int
    log_dirs: tuple[int, ...] = (1,)
    """0 stands for the reserved id "lost"; other numbers are directories of the broker."""
    rack: str | None = None
    is_clean: bool = False
    """Whether the broker was shut down cleanly: then it names its previous epoch."""
    is_stranger: bool = False
    """Whether the broker belongs to another cluster."""
    is_late: bool = False
    """Whether it starts only after the session of the previous process has ended."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """One heartbeat of a registered broker."""

    broker_id: int
    want_fence: bool = False
    want_shut_down: bool = False
    is_caught_up: bool = True
    """Whether the broker has read all metadata; if not, it has read none."""
    epoch_change: int = 0
    offline_log_dirs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class VanishBroker:
    """A broker sends no heartbeats until it is fenced."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class UnregisterBroker:
    """A registration is deleted."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class CreateTopics:
    """Topics with manual assignments."""

    topics: tuple[NewTopic, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class PlaceTopic:
    """A topic whose replicas the controller places: its properties are compared, and it is deleted again."""

    name: str
    num_partitions: int
    replication_factor: int


@dataclass(frozen=True, slots=True)
class DeleteTopics:
    """Topics are deleted by name."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CreatePartitions:
    """A topic gets more partitions."""

    topic: str
    count: int
    assignments: tuple[tuple[int, ...], ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class AlterConfigs:
    """Configs of one resource."""

    resource_type: int
    resource_name: str
    changes: tuple[tuple[str, int, str], ...]
    """Name, operation, value."""
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class Reassign:
    """Replicas are moved, or their moves cancelled."""

    partitions: tuple[Reassignment, ...]


@dataclass(frozen=True, slots=True)
class ElectLeaders:
    """An election. `partitions` None means all."""

    election_type: int
    partitions: tuple[tuple[str, int], ...] | None


@dataclass(frozen=True, slots=True)
class AlterPartition:
    """A leader proposes an ISR."""

    topic: str
    partition: int
    isr: tuple[int, ...] = ()
    meaning: str = EXACTLY
    """How to read `isr`. EXACTLY: it is the new ISR. TOGGLE: each of its brokers is added, or removed unless it leads.
    ALL: the ISR is all replicas. ALONE: it is the leader."""
    sender: int | None = None
    """None: the leader, or broker 1 if there is none."""
    broker_epoch_change: int = 0
    leader_epoch_change: int = 0
    partition_epoch_change: int = 0
    recovery_state: int = 0
    member_epoch_change: int | None = 0
    """None: the request does not name the members' broker epochs."""


@dataclass(frozen=True, slots=True)
class AssignDirectories:
    """A broker reports that one of its directories holds these replicas."""

    broker_id: int
    log_dir: int
    partitions: tuple[tuple[str, int], ...]
    epoch_change: int = 0


@dataclass(frozen=True, slots=True)
class AllocateProducerIds:
    """A broker wants a block of producer ids."""

    broker_id: int
    epoch_change: int = 0


@dataclass(frozen=True, slots=True)
class UpdateFeature:
    """One feature gets another level."""

    name: str
    level: int
    upgrade_type: int
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class AlterQuotas:
    """Quotas of one entity."""

    entity: tuple[tuple[str, str | None], ...]
    changes: tuple[tuple[str, float | None], ...]
    """Name and value; None removes it."""
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class Acl:
    """An access control entry, with Kafka's numbers."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Which entries to delete: None and Kafka's ANY (1) match all."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission_type: int


@dataclass(frozen=True, slots=True)
class CreateAcls:
    """Access control entries are added."""

    entries: tuple[Acl, ...]


@dataclass(frozen=True, slots=True)
class DeleteAcls:
    """Access control entries are deleted."""

    filters: tuple[AclFilter, ...]


Step: TypeAlias = (
    RegisterBroker | Heartbeat | VanishBroker | UnregisterBroker | CreateTopics | PlaceTopic | DeleteTopics
    | CreatePartitions | AlterConfigs | Reassign | ElectLeaders | AlterPartition | AssignDirectories
    | AllocateProducerIds | UpdateFeature | AlterQuotas | CreateAcls | DeleteAcls
)  # fmt: skip

KINDS: Final[dict[str, type[Any]]] = {kind.__name__: kind for kind in Step.__args__}

_PARTS: Final[dict[str, type[Any]]] = {"topics": NewTopic, "entries": Acl, "filters": AclFilter}
"""The fields whose elements are objects."""


def to_json(step: Step) -> dict[str, Any]:
    """Return a step as a JSON object, without fields that have their default."""
    shown = {
        field.name: value
        for field in fields(step)
        if (value := getattr(step, field.name)) != field.default or field.default is None
    }
    for name, kind in _PARTS.items():
        if name in shown and isinstance(step, CreateTopics | CreateAcls | DeleteAcls):
            shown[name] = [asdict(part) for part in shown[name] if isinstance(part, kind)]
    return {"step": type(step).__name__, **shown}


def from_json(shown: dict[str, Any]) -> Step:
    """Return the step of a JSON object from `to_json`. Raises KeyError or TypeError for any other object."""
    kind = KINDS[shown["step"]]
    values = {name: _tuples(value) for name, value in shown.items() if name != "step"}
    for name, part in _PARTS.items():
        if name in values and kind in (CreateTopics, CreateAcls, DeleteAcls):
            values[name] = tuple(part(**{key: _tuples(value) for key, value in one.items()}) for one in values[name])
    step: Step = kind(**values)
    return step


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value
