"""A node's configuration file: TOML, strict, with Kafka's keys.

An unknown key is refused, and the nearest known key is suggested. Every error names the
file, the key and the value, and says what to do. The keys are in `kraftlog.config.settings`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ConfigurationError
from kraftbase.types import NodeId
from kraftlog.config.endpoints import WILDCARD_HOSTS
from kraftlog.config.settings import SETTING_BY_KEY, SETTINGS, Setting
from kraftlog.config.toml_files import flattened, no_setting, read_toml, toml_value
from kraftlog.controller.controller_config import ControllerConfig
from raft.core.config import QuorumConfig
from raft.core.types import ReplicaKey
from raft.core.voters import Voter, VoterSet
from raft.rpc.limits import ServiceLimits
from raft.storage.segmented_log import LogConfig
from snapshot.log_start_policy import LogStartConfig
from statemachine.store.scrubber import SCRUB_INTERVAL_MS
from statemachine.store.snapshot_generator import SnapshotConfig
from statemachine.store.store import READ_MAX_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """One node's configuration. Raises ConfigurationError if its parts contradict each other."""

    node_id: NodeId
    directory: Path
    """Where the node keeps its data."""
    listener: Endpoint
    """The address it binds to."""
    voters: tuple[tuple[NodeId, Endpoint], ...]
    """The voters and where they listen; the same on every node."""
    controller_listener: Endpoint | None = None
    """The address it binds to for other replicas; None: `listener` serves clients and replicas."""
    client_listeners: tuple[tuple[NodeId, Endpoint], ...] = ()
    """Where clients reach the voters, if `voters` are the addresses for replicas; the same on every node."""
    bootstrap_servers: tuple[Endpoint, ...] = ()
    """Where an observer asks for the leader, in addition to the voters."""
    quorum: QuorumConfig = field(default_factory=QuorumConfig)
    log: LogConfig = field(default_factory=LogConfig)
    snapshots: SnapshotConfig = field(default_factory=SnapshotConfig)
    log_start: LogStartConfig = field(default_factory=LogStartConfig)
    controller: ControllerConfig = field(default_factory=ControllerConfig)
    """The settings of the controller while this node's is the active one."""
    service: ServiceLimits = field(default_factory=ServiceLimits)
    """Limits and timeouts for clients."""
    read_max_ms: int = READ_MAX_MS
    """How long a read of the metadata may take; during a read the database's write-ahead log only grows."""
    scrub_interval_ms: int = SCRUB_INTERVAL_MS
    """How long after one scrub of the metadata database the next begins; 0: only at the start."""
    log_level: str = "info"

    def __post_init__(self) -> None:
        VoterSet(Voter(ReplicaKey(node_id), endpoint) for node_id, endpoint in self.voters)  # none is refused (RF-05)
        voter_at: dict[Endpoint, NodeId] = {}
        for node_id, endpoint in self.voters:
            if endpoint in voter_at:
                raise ConfigurationError(
                    f"controller.quorum.voters has voters {voter_at[endpoint]} and {node_id} both at {endpoint};"
                    " give each voter an address of its own"
                )
            voter_at[endpoint] = node_id
        self._check_listeners()
        own = dict(self.voters).get(self.node_id)
        if own is None and self.listener.host in WILDCARD_HOSTS:
            raise ConfigurationError(
                f"listeners = {str(self.listener)!r}: other nodes connect to an observer's address; name the host"
            )

    def _check_listeners(self) -> None:
        """Check that this node listens on the port of each address that the configuration gives for it to others."""
        for_clients, for_replicas = dict(self.client_listeners), dict(self.voters)
        if for_clients and for_clients.keys() != for_replicas.keys():
            raise ConfigurationError(
                f"client.listeners is of nodes {sorted(for_clients)}, controller.quorum.voters of"
                f" {sorted(for_replicas)}; name the same voters in both"
            )
        if self.node_id in for_replicas and (self.controller_listener is None) != (not for_clients):
            raise ConfigurationError(
                "controller.listener and client.listeners go together: one is where this voter listens for"
                " replicas, the other where clients reach each voter; set both, or none"
            )
        bound = "listeners" if self.controller_listener is None else "controller.listener"
        for key, told, name, endpoint in (
            ("controller.quorum.voters", for_replicas, bound, self.controller_listener or self.listener),
            ("client.listeners", for_clients, "listeners", self.listener),
        ):
            own = told.get(self.node_id)
            if own is not None and own.port != endpoint.port:
                raise ConfigurationError(
                    f"{key} has voter {self.node_id} at {own}, {name} has {endpoint}; give both the same port"
                )
        if self.controller_listener is not None and self.controller_listener.port == self.listener.port:
            raise ConfigurationError(
                f"controller.listener and listeners both have port {self.listener.port}; give each its own"
            )

    @property
    def client_endpoint(self) -> Endpoint:
        """Where clients reach the node."""
        return dict(self.client_listeners).get(self.node_id, self.advertised_endpoint)

    @property
    def is_voter(self) -> bool:
        """Whether the node votes; otherwise it is an observer."""
        return self.node_id in dict(self.voters)

    @property
    def voter_set(self) -> VoterSet:
        """The voters in the form that the core uses."""
        return VoterSet(Voter(ReplicaKey(node_id), endpoint) for node_id, endpoint in self.voters)

    @property
    def advertised_endpoint(self) -> Endpoint:
        """Where other replicas reach the node: a voter's entry among the voters, an observer's listener."""
        return dict(self.voters).get(self.node_id, self.listener)


_SECTIONS: Final[Mapping[str, type]] = {
    "node": NodeConfig,
    "quorum": QuorumConfig,
    "log": LogConfig,
    "snapshots": SnapshotConfig,
    "log_start": LogStartConfig,
    "controller": ControllerConfig,
    "service": ServiceLimits,
}


def load_config(path: Path) -> NodeConfig:
    """The configuration in the file at `path`. Raises ConfigurationError."""
    try:
        return parse_config(read_toml(path, "a node's"), path.resolve().parent)
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}") from None
    except RecursionError:
        raise ConfigurationError(f"{path}: it is nested deeper than any setting; correct the file") from None


def parse_config(document: Mapping[str, Any], base: Path) -> NodeConfig:
    """The configuration in a TOML document; a relative `log.dir` starts at `base`. Raises ConfigurationError."""
    values: dict[str, dict[str, Any]] = {section: {} for section in _SECTIONS}
    for key, value in flattened(document):
        setting = _known(key)
        section = values[setting.section]
        if setting.field in section:
            raise ConfigurationError(f"{key} is set twice; keep one of them")
        section[setting.field] = _parse(setting, value)
    for setting in SETTINGS:
        if setting.field not in values[setting.section] and _default(setting) is MISSING:
            raise ConfigurationError(f"{setting.key} is missing; add it: {setting.meaning}")
    node = values["node"]
    node["directory"] = base / node["directory"]
    return NodeConfig(
        **node,
        quorum=QuorumConfig(**values["quorum"]),
        log=LogConfig(**values["log"]),
        snapshots=SnapshotConfig(**values["snapshots"]),
        log_start=LogStartConfig(**values["log_start"]),
        controller=ControllerConfig(**values["controller"]),
        service=ServiceLimits(**values["service"]),
    )


def render_config(settings: Mapping[str, object]) -> str:
    """A commented configuration file with these keys set, and every other key shown with its default.

    Values are texts, whole numbers, or lists of texts. Raises ConfigurationError for a key that is not known.
    """
    for key in settings:
        _known(key)
    blocks = []
    for setting in SETTINGS:
        value, mark = settings.get(setting.key), ""
        if value is None:
            value, mark = _default(setting), "# "
            value = setting.none if value is None else value
        if value is not MISSING:
            blocks.append(f"# {setting.meaning}\n{mark}{setting.key} = {toml_value(value)}\n")
    return "\n".join(blocks)


def _known(key: str) -> Setting:
    setting = SETTING_BY_KEY.get(key)
    if setting is None:
        raise no_setting(key, SETTING_BY_KEY)
    return setting


def _parse(setting: Setting, value: object) -> object:
    try:
        return setting.parse(value)
    except ConfigurationError as error:
        raise ConfigurationError(f"{setting.key} = {toml_value(value)}: {error}") from None


def _default(setting: Setting) -> Any:
    return next(field.default for field in fields(_SECTIONS[setting.section]) if field.name == setting.field)
