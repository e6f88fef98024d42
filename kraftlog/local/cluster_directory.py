"""The directory of a local cluster: which nodes it has, where they listen, and their data.

    DIR/cluster.toml        the cluster's id and its nodes; written first, and again when everything else exists
    DIR/node-1.toml         a node's configuration, commented, there to be edited
    DIR/node-1/             its data
    DIR/logs/node-1.log     its log lines
    DIR/broker-101/         how a broker was shut down
    DIR/.lock               held by the `kraftlog up` that runs it

If its creation was interrupted, the next run continues it. Once it is complete nothing is created again: a voter whose
data is missing is refused, because with the vote of an empty voter committed records could be lost.
"""

from __future__ import annotations

import os
import random
import re
import socket
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ConfigurationError, DirectoryError
from kraftbase.files.posix import PosixFileSystem
from kraftbase.types import NodeId
from kraftbase.uuids import random_cluster_id
from kraftlog.config.config import NodeConfig, load_config, render_config
from kraftlog.config.endpoints import PORT_MAX, parse_endpoint, parse_node_id
from kraftlog.config.formatting import format_directory
from kraftlog.config.setting_values import whole_number
from raft.core.types import ReplicaKey
from raft.core.voters import Voter, VoterSet
from raft.storage.directory import LOCK_NAME

CLUSTER_FILE: Final = "cluster.toml"
FORMAT_VERSION: Final = 1
HOST: Final = "127.0.0.1"
OUTGOING_PORTS: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
DEFAULT_OUTGOING_PORT: Final = 32768
LISTENING_PORT_MIN: Final = 16384
PORTS_VARIABLE: Final = "KRAFTLOG_PORTS"
VOTERS_MAX: Final = 15
OBSERVERS_MAX: Final = 50

LOCAL_SETTINGS: Final[Mapping[str, object]] = {
    "controller.quorum.election.timeout.ms": 250,
    "controller.quorum.fetch.timeout.ms": 1000,
    "controller.quorum.election.backoff.max.ms": 500,
}
"""On one machine a silent leader is a dead one: voters replace it well within three seconds."""


@dataclass(frozen=True, slots=True)
class ClusterDirectory:
    """The contents of `cluster.toml`."""

    path: Path
    cluster_id: str
    endpoints: Mapping[NodeId, Endpoint]
    voter_ids: frozenset[NodeId]
    is_complete: bool

    @property
    def observer_ids(self) -> frozenset[NodeId]:
        """The nodes that do not vote."""
        return frozenset(self.endpoints) - self.voter_ids

    def config_path(self, node_id: NodeId) -> Path:
        """A node's configuration file."""
        return self.path / f"node-{node_id}.toml"

    def data_path(self, node_id: NodeId) -> Path:
        """A node's data directory."""
        return self.path / f"node-{node_id}"

    def log_path(self, node_id: NodeId) -> Path:
        """The file with a node's log lines."""
        return self.path / "logs" / f"node-{node_id}.log"

    @contextmanager
    def held(self) -> Iterator[None]:
        """No other process runs the cluster within the block. Raises DirectoryError if one does, StorageError."""
        lock = PosixFileSystem().try_lock(str(self.path / LOCK_NAME))
        if lock is None:
            raise DirectoryError(
                f"the cluster in {self.path} is in use by another `kraftlog up`; stop that one, or name another"
                " directory"
            )
        with closing(lock):
            yield

    def load_configs(self) -> dict[NodeId, NodeConfig]:
        """Every node's configuration, checked against `cluster.toml`."""
        configs = {node_id: load_config(self.config_path(node_id)) for node_id in self.endpoints}
        for node_id, config in configs.items():
            if config.node_id != node_id:
                raise ConfigurationError(
                    f"{self.config_path(node_id)}: node.id = {config.node_id}; make it {node_id} as in {CLUSTER_FILE}"
                )
        return configs


def open_or_create(
    path: Path,
    *,
    voters: int | None = None,
    observers: int | None = None,
    settings: Mapping[str, object] | None = None,
    endpoints: Sequence[Endpoint] | None = None,
    first_port: int | None = None,
    cluster_id: str | None = None,
) -> ClusterDirectory:
    """The cluster in `path`, created if the directory is empty or does not exist.

    `voters` (3 if None) and `observers` (0) count the nodes of a new cluster and must fit an existing one, as must
    `first_port`, the loopback port of node 1: the others listen at the next ones. `settings` are added to a new
    cluster's configuration files. It has `cluster_id`, or a random one. Its nodes listen at `endpoints`, one each, else
    from `first_port` on, else at free ports. Raises DirectoryError for a directory that holds something else,
    ConfigurationError for counts and ports that do not fit, or are in use.
    """
    path = path.resolve()
    if (path / CLUSTER_FILE).exists():
        cluster = _read(path / CLUSTER_FILE)
        _check_counts(cluster, voters, observers)
        _check_first_port(cluster, first_port)
    else:
        _check_empty(path)
        counts = (3 if voters is None else voters, 0 if observers is None else observers)
        cluster = _plan(path, *counts, lambda count: endpoints or _new_endpoints(count, first_port))
        cluster = replace(cluster, cluster_id=cluster_id or cluster.cluster_id)
    if not cluster.is_complete:
        cluster = _make(cluster, {**LOCAL_SETTINGS, **(settings or {})})
    _check_data(cluster)
    return cluster


def _check_empty(path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise DirectoryError(f"{path} is a file; name a directory for the cluster")
    leftovers = {f"{CLUSTER_FILE}.new"}
    if path.exists() and any(entry.name not in leftovers for entry in path.iterdir()):
        raise DirectoryError(f"{path} holds something that is not a kraftlog cluster; name an empty or a new directory")


def _check_counts(cluster: ClusterDirectory, voters: int | None, observers: int | None) -> None:
    for wanted, found, what in (
        (voters, len(cluster.voter_ids), "voters"),
        (observers, len(cluster.observer_ids), "observers"),
    ):
        if wanted is not None and wanted != found:
            raise ConfigurationError(
                f"the cluster in {cluster.path} has {found} {what}, not {wanted};"
                f" leave --{what} out, or name another directory for a new cluster"
            )


def _check_first_port(cluster: ClusterDirectory, first_port: int | None) -> None:
    found = cluster.endpoints[NodeId(1)]
    if first_port is not None and first_port != found.port:
        raise ConfigurationError(
            f"node 1 of the cluster in {cluster.path} listens at {found}, not at port {first_port};"
            " leave --first-port out, or name another directory for a new cluster"
        )


def _check_data(cluster: ClusterDirectory) -> None:
    missing = sorted(node_id for node_id in cluster.endpoints if not cluster.data_path(node_id).is_dir())
    if not missing:
        return
    left = cluster.voter_ids.difference(missing)
    if left == cluster.voter_ids:
        page = "nodes.md"
    elif 2 * len(left) > len(cluster.voter_ids):
        page = "replacing-a-disk.md"
    else:
        page = "all-voters-are-lost.md"
    raise DirectoryError(
        f"the data of node{'s' if missing[1:] else ''} {', '.join(map(str, missing))} is missing:"
        f" there is no {cluster.data_path(missing[0])}; put it back if it was moved, or name another directory for a"
        f" new cluster; if it is lost, see docs/operations/{page}"
    )


def _plan(
    path: Path, voters: int, observers: int, endpoints_for: Callable[[int], Sequence[Endpoint]]
) -> ClusterDirectory:
    for count, low, high, what in ((voters, 1, VOTERS_MAX, "voters"), (observers, 0, OBSERVERS_MAX, "observers")):
        if not low <= count <= high:
            raise ConfigurationError(f"{count} {what}; a local cluster has from {low} to {high}")
    node_ids = [NodeId(number) for number in range(1, voters + observers + 1)]
    endpoints = dict(zip(node_ids, endpoints_for(len(node_ids)), strict=True))
    return ClusterDirectory(path, random_cluster_id(), endpoints, frozenset(node_ids[:voters]), is_complete=False)


def _new_endpoints(count: int, first_port: int | None) -> list[Endpoint]:
    if first_port is None:
        return free_endpoints(count)
    endpoints = [Endpoint(HOST, port) for port in range(first_port, first_port + count)]
    if endpoints[-1].port > PORT_MAX:
        raise ConfigurationError(f"{count} nodes from port {first_port} on; there is none above {PORT_MAX}")
    for endpoint in endpoints:
        with socket.socket() as one:
            try:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port that was just closed is free
                one.bind((endpoint.host, endpoint.port))
            except OSError as error:
                raise ConfigurationError(
                    f"no node can listen at {endpoint}: {error.strerror}; name another --first-port"
                ) from None
    return endpoints


def free_endpoints(count: int) -> list[Endpoint]:
    """Addresses on this machine at which no process listens now, below the ports of outgoing connections.

    Of the ports of outgoing connections, a connection could take the port of a node that is down, even a client's
    attempt to reach it. KRAFTLOG_PORTS=FIRST-LAST in the environment narrows them down, so that two programs that look
    for ports at the same time, and use them later, do not get the same. Raises ConfigurationError.
    """
    candidates = _listening_ports()
    found: list[Endpoint] = []
    with ExitStack() as stack:
        for port in random.sample(candidates, len(candidates)):
            if len(found) == count:
                return found
            one = stack.enter_context(socket.socket())
            with suppress(OSError):
                one.bind((HOST, port))
                found.append(Endpoint(HOST, port))
    raise ConfigurationError(f"{HOST} does not have {count} free ports; stop a process that listens")


def _listening_ports() -> range:
    """The ports to choose from."""
    given = os.environ.get(PORTS_VARIABLE)
    if given is None:
        outgoing = int(OUTGOING_PORTS.read_text().split()[0]) if OUTGOING_PORTS.exists() else DEFAULT_OUTGOING_PORT
        return range(min(LISTENING_PORT_MIN, outgoing // 2), outgoing)
    match = re.fullmatch(r"(\d{1,5})-(\d{1,5})", given, re.ASCII)
    if match is None or not 0 < int(match[1]) <= int(match[2]) <= PORT_MAX:
        raise ConfigurationError(f"{PORTS_VARIABLE} is {given!r}; give the first and the last, such as 20000-29999")
    return range(int(match[1]), int(match[2]) + 1)


def _make(cluster: ClusterDirectory, settings: Mapping[str, object]) -> ClusterDirectory:
    (cluster.path / "logs").mkdir(parents=True, exist_ok=True)
    _write(cluster)
    voters = [f"{node_id}@{cluster.endpoints[node_id]}" for node_id in sorted(cluster.voter_ids)]
    for node_id, endpoint in cluster.endpoints.items():
        config = {
            "node.id": node_id,
            "log.dir": cluster.data_path(node_id).name,
            "listeners": str(endpoint),
            "controller.quorum.voters": voters,
            **settings,
        }
        _write_text(cluster.config_path(node_id), render_config(config))
    _format_nodes(cluster)
    complete = replace(cluster, is_complete=True)
    _write(complete)
    return complete


def _format_nodes(cluster: ClusterDirectory) -> None:
    """Make the nodes' data, in which each knows the voters by their directories."""
    configs = {node_id: load_config(cluster.config_path(node_id)) for node_id in cluster.endpoints}
    identities = {
        node_id: format_directory(config, cluster.cluster_id, ignore_formatted=True)
        for node_id, config in configs.items()
    }
    voters = VoterSet(
        Voter(ReplicaKey(node_id, identities[node_id].directory_id), cluster.endpoints[node_id])
        for node_id in cluster.voter_ids
    )
    for config in configs.values():
        format_directory(config, cluster.cluster_id, initial_controllers=voters, ignore_formatted=True)


def _write(cluster: ClusterDirectory) -> None:
    lines = [
        "# A local kraftlog cluster. Written by kraftlog; edit the nodes' own files instead.",
        f"format.version = {FORMAT_VERSION}",
        f'cluster.id = "{cluster.cluster_id}"',
        f"complete = {str(cluster.is_complete).lower()}",
        f"voters = {sorted(cluster.voter_ids)}",
        "",
        "[listeners]",
        *(f'{node_id} = "{endpoint}"' for node_id, endpoint in cluster.endpoints.items()),
    ]
    _write_text(cluster.path / CLUSTER_FILE, "\n".join(lines) + "\n")


def _write_text(path: Path, text: str) -> None:
    """Replace a file with `text` as a whole: a reader sees the old or the new, also after a power cut."""
    new = path.with_name(path.name + ".new")
    with new.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def _read(path: Path) -> ClusterDirectory:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        version = document["format"]["version"]
        if version != FORMAT_VERSION:
            raise DirectoryError(
                f"{path} has format version {version}; this kraftlog knows version {FORMAT_VERSION}: use a newer one"
            )
        return _cluster_of(path.parent, document)
    except (KeyError, TypeError, ValueError, RecursionError, ConfigurationError) as error:
        raise DirectoryError(f"{path} is damaged ({error}); restore it, or name another directory") from None


def _cluster_of(path: Path, document: Mapping[str, Any]) -> ClusterDirectory:
    endpoints = {parse_node_id(key): parse_endpoint(value) for key, value in document["listeners"].items()}
    voter_ids: Sequence[Any] = document["voters"]
    node_id = whole_number(0)
    return ClusterDirectory(
        path,
        str(document["cluster"]["id"]),
        endpoints,
        frozenset(NodeId(node_id(voter)) for voter in voter_ids),
        is_complete=document["complete"] is True,
    )
