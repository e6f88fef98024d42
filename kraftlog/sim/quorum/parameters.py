"""The parameters of a run, drawn from its seed: many faults of few kinds, or few of many (swarm testing).

The same seed and the same version of this program always give the same run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from kraftlog.sim.engine.parameters import Overrides, Parameters
from kraftlog.sim.engine.virtual.network import NetworkConditions
from kraftlog.sim.quorum.fault_kinds import KINDS
from raft.core.config import FETCH_VERSIONS, QuorumConfig
from raft.storage.segmented_log import LogConfig
from snapshot.log_start_policy import LogStartConfig, LogStartPolicy

BROKERS_ONE_IN: Final = 6
"""Every sixth seed has brokers and controllers: 3, 9, 15 and so on."""

BROKERS_SECONDS_MAX: Final = 60
"""Runs with brokers are short, because heartbeats make many steps."""

LARGE_CLUSTER: Final = 5
"""Runs with at least this number of nodes are half as long: most of their many steps are fetches that find nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerParameters:
    """The brokers of a run, and the settings of their controllers."""

    count: int
    session_timeout_ms: int
    heartbeat_interval_ms: int
    alter_interval_ms: int
    """The average time between two ISR proposals of a leader."""
    outage_interval_ms: int
    """The average time between two outages of one broker."""
    admin_interval_ms: int
    """The average time between two operations of the administrator."""
    topics_max: int
    """The maximum number of topics at a time."""
    balance_interval_seconds: int
    unclean_interval_ms: int
    idle_interval_ms: int
    append_kill_rate: float
    """The probability that a controller's process is killed just before an append."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumParameters(Parameters):
    """The parameters of one run."""

    voters: int
    observers: int
    clients: int
    keys: int
    voters_know_directories: bool
    """Whether the voter set names directory ids.

    If so, a voter whose disk was wiped counts as another replica (KIP-853).
    """
    fault_interval_ms: int
    """The average time between two faults."""
    think_time_ms: int
    """The average time that a client waits between two operations."""
    operations_max: int
    """The maximum number of operations that all clients together begin while faults happen."""
    client_timeout_ms: int
    network: NetworkConditions
    quorum: QuorumConfig
    fetch_versions: tuple[int, ...]
    """The `fetch.version` of each voter, then of each observer."""
    log: LogConfig
    through_codec: bool
    """Whether messages are encoded to the wire format and decoded again."""
    snapshot_interval: int
    """The number of applied batches after which a node takes a snapshot; 0: never."""
    log_start: LogStartConfig
    brokers: BrokerParameters | None = None
    """None: the run has neither brokers nor controllers."""
    may_lose_quorum: bool = False
    """Whether faults may destroy more than a minority of the disks.

    The cluster must then stop rather than answer wrongly.
    """

    @property
    def sizes(self) -> Mapping[str, int]:
        """The number of voters, observers and brokers."""
        brokers = 0 if self.brokers is None else self.brokers.count
        return {"voters": self.voters, "observers": self.observers, "brokers": brokers}


def draw(seed: int, overrides: Overrides) -> QuorumParameters:
    """Return the parameters of the run with that seed."""
    random = Random(seed)
    fault_kinds, sizes = overrides.kinds_to_draw(KINDS), overrides.sizes
    voters = random.choice([1, 2, 3, 3, 3, 3, 3, 3, 4, 5])
    observers = random.choice([0, 0, 0, 1, 1, 2])
    how_many = random.choice([1, 3, 6, 12, len(fault_kinds)])
    kinds = sorted(random.sample(list(fault_kinds), min(how_many, len(fault_kinds))), key=KINDS.index)
    is_busy = random.random() < 0.35
    parameters = QuorumParameters(
        seed=seed,
        voters=sizes.get("voters", voters),
        observers=sizes.get("observers", observers),
        clients=random.choice([1, 2, 4]),
        keys=random.choice([1, 2, 4]),
        voters_know_directories=random.random() < 0.5,
        seconds=random.choice([20, 60, 60, 120]) if is_busy else random.choice([120, 240, 360]),
        fault_interval_ms=random.choice([700, 2_000]) if is_busy else random.choice([3_000, 10_000, 30_000]),
        think_time_ms=random.choice([20, 100, 300]) if is_busy else random.choice([500, 2_000, 5_000]),
        operations_max=120,
        client_timeout_ms=random.choice([500, 3_000, 10_000]),
        fault_kinds=tuple(kinds),
        network=_draw_network(random),
        quorum=_draw_quorum(random, is_busy),
        fetch_versions=(),
        log=LogConfig(
            segment_bytes=random.choice([20_000, 1_000_000] if is_busy else [1_500, 6_000, 1_000_000]),
            preallocate_bytes=random.choice([1, 4_096]),
            reserve_bytes=1_024,
            tail_cache_bytes=random.choice([0, 20_000, 100_000, 100_000]),
        ),
        through_codec=random.random() < 0.3,
        may_lose_quorum=random.random() < 0.03,
        snapshot_interval=random.choice([0, 3, 10, 10, 30]),
        log_start=_draw_log_start(random),
    )
    chunk_bytes = random.choice([30, 60, 500, 1_000_000])
    parameters = replace(parameters, quorum=replace(parameters.quorum, fetch_snapshot_max_bytes=chunk_bytes))
    # Drawn from a separate generator, so that the rest of a seed's run does not depend on whether it has brokers.
    parameters = _with_brokers(parameters, Random(f"brokers {seed}"), sizes.get("brokers"))
    if parameters.voters + parameters.observers >= LARGE_CLUSTER:
        parameters = replace(parameters, seconds=parameters.seconds // 2)
    return replace(parameters, fetch_versions=_draw_fetch_versions(parameters))


def _with_brokers(parameters: QuorumParameters, random: Random, count: int | None) -> QuorumParameters:
    has_brokers = parameters.seed % BROKERS_ONE_IN == 3
    brokers = BrokerParameters(
        count=random.choice([1, 3, 3, 4, 5]),
        session_timeout_ms=random.choice([1_500, 3_000, 9_000]),
        heartbeat_interval_ms=random.choice([500, 500, 1_000]),
        alter_interval_ms=random.choice([300, 1_000, 4_000]),
        outage_interval_ms=random.choice([4_000, 10_000, 20_000]),
        admin_interval_ms=random.choice([300, 1_000, 2_000]),
        topics_max=random.choice([1, 3, 6]),
        balance_interval_seconds=random.choice([5, 20, 300]),
        unclean_interval_ms=random.choice([2_000, 10_000]),
        idle_interval_ms=random.choice([0, 0, 0, 2_000]),
        append_kill_rate=random.choice([0.0, 0.0, 0.03]),
    )
    if count == 0 or (count is None and not has_brokers):
        return parameters
    return replace(
        parameters,
        brokers=replace(brokers, count=count or brokers.count),
        seconds=min(parameters.seconds, BROKERS_SECONDS_MAX),
        # Room for one registration and little else, so that the pages of longer work have to wait.
        quorum=replace(
            parameters.quorum, pending_append_bytes_max=max(500, parameters.quorum.pending_append_bytes_max)
        ),
    )


def _draw_fetch_versions(parameters: QuorumParameters) -> tuple[int, ...]:
    """Return each node's version: mostly the quorum's, for one node in four any.

    Overrides may add nodes: use another generator.
    """
    random, most = Random(f"fetch versions {parameters.seed}"), parameters.quorum.fetch_version
    return tuple(
        random.choice(FETCH_VERSIONS) if random.random() < 0.25 else most
        for _ in range(parameters.voters + parameters.observers)
    )


def _draw_network(random: Random) -> NetworkConditions:
    return NetworkConditions(
        delay_us=random.choice([(100, 500), (200, 2_000), (1_000, 40_000)]),
        drop_rate=random.choice([0.0, 0.0, 0.0, 0.01, 0.05]),
        duplicate_rate=random.choice([0.0, 0.0, 0.0, 0.05, 0.2]),
        late_rate=random.choice([0.0, 0.0, 0.02, 0.2]),
        late_us_max=random.choice([50_000, 5_000_000]),
    )


def _draw_log_start(random: Random) -> LogStartConfig:
    config = LogStartConfig(
        policy=random.choice([*[LogStartPolicy.REPLICATED] * 4, LogStartPolicy.EAGER]),
        retention_bytes=random.choice([0, 0, 0, 4_000]),
        retention_ms=random.choice([20_000, 604_800_000]),
        lag_time_max_ms=random.choice([5_000, 60_000, 604_800_000]),
        replica_session_timeout_ms=random.choice([3_000, 9_000]),
        replica_restart_grace_ms=0,
    )
    if config.replica_session_timeout_ms == 9_000:  # not drawn separately: that would change the run of every seed
        return replace(config, replica_restart_grace_ms=20_000)
    return config


def _draw_quorum(random: Random, is_busy: bool) -> QuorumConfig:
    # In a long run, timers with short intervals would make most of the steps.
    fetch_timeout_ms = random.choice([600, 2_000] if is_busy else [600] + [2_000] * 7)
    return QuorumConfig(
        election_timeout_ms=random.choice([100, 500, 1_000]),
        fetch_timeout_ms=fetch_timeout_ms,
        election_backoff_max_ms=random.choice([100, 1_000]),
        request_timeout_ms=random.choice([fetch_timeout_ms, 2_000]),
        fetch_max_wait_ms=random.choice([200, 500, 500])
        if fetch_timeout_ms == 600
        else random.choice([500] + [1_500] * 4),
        fetch_max_bytes=random.choice([1, 500, 1_000_000]),
        fetch_version=random.choice([17, 18, 18, 18]),
        retry_backoff_ms=random.choice([20, 200]) if is_busy else 200,
        parked_fetches_max=random.choice([20, 10_000]),
        pending_append_bytes_max=random.choice([100, 1_000_000, 1_000_000]),
    )
