"""The parameters that a seed draws for a world of brokers that replicate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from kraftlog.sim.broker_log.file_damage import DAMAGES
from kraftlog.sim.engine.parameters import Overrides, Parameters

FULL: Final = "disk: full"

FAULT_KINDS: Final = (
    "process: shut down",
    "process: killed",
    "process: a leader is killed",
    "process: killed between two operations",
    "process: killed at its start",
    "process: paused",
    "power: cut, nothing unsynced kept",
    "power: cut, a torn write kept",
    "power: cut, sectors kept in any order",
    "power: cut, pages kept in any order",
    "power: cut everywhere",
    FULL,
    "disk: a directory fails",
    "disk: slow",
    "clock: the wall clock jumps ahead",
    "clock: the wall clock jumps back",
    "network: a link between brokers is cut",
    "network: a link between brokers is cut one way",
    "network: a broker is isolated",
    "network: a broker does not reach the controller",
    "network: split in two",
    "network: a link is slow",
    "metadata: slow to a broker",
    "elections: leaders change fast",
    "process: killed, with its requests under way",
)
"""In the order in which seeds draw them. Add new kinds at the end."""

BIT_ROT: Final = "disk: bytes of a log change"
"""A kind that is drawn by itself, after all draws that existed before it, so that these did not change."""

OLDER_COPY: Final = "disk: an older copy is put back"
"""A kind that is drawn by itself, after BIT_ROT."""

AWAY: Final = "disk: not there at a start"
"""A kind that is drawn by itself, in seeds without damage to disks."""

KILLED_AT_END: Final = "process: killed at its end"
ASKED_AT_START: Final = "process: asked to end at its start"
CUT_OFF: Final = "network: a controller node is cut off"
ELIGIBLE: Final = "power: cut at an eligible replica, and the leader killed"
LATER_KINDS: Final = (KILLED_AT_END, ASKED_AT_START, CUT_OFF, ELIGIBLE)
"""Kinds that are drawn by themselves, after all kinds above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicParameters:
    """The settings of one topic."""

    flush_before_ack: bool
    min_insync_replicas: int
    replication_factor: int
    partitions: int
    has_unclean_elections: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationParameters(Parameters):
    """The parameters of one run."""

    brokers: int
    directories: int
    """The number of log directories of each broker."""
    topics: tuple[TopicParameters, ...]
    segment_bytes: int
    """The segment size of all logs."""
    producers: int
    readers: int
    think_time_ms: int
    """The average time that a producer waits between batches."""
    fault_interval_ms: int
    administration_interval_ms: int
    session_timeout_ms: int
    heartbeat_interval_ms: int
    lag_max_ms: int
    """replica.lag.time.max.ms."""
    fetch_wait_ms: int
    """replica.fetch.wait.max.ms."""
    fetch_bytes_max: int
    """replica.fetch.max.bytes."""
    backoff_ms: int
    """replica.fetch.backoff.ms."""
    checkpoint_interval_ms: int
    metadata_delay_ms: int
    """The longest delay with which committed metadata reaches a broker."""
    has_eligible_leaders: bool
    """Whether the controller keeps eligible leader replicas (KIP-966)."""
    has_slow_disks: bool
    """Whether disks are slow for the whole run. Flushes run in the disk thread."""
    has_codec: bool
    """Whether the brokers' messages are encoded and decoded in transit, which is slow."""
    has_transactions: bool = False

    @property
    def sizes(self) -> Mapping[str, int]:
        """The number of brokers."""
        return {"brokers": self.brokers}


def draw(seed: int, overrides: Overrides) -> ReplicationParameters:
    """Return the parameters of the run with that seed."""
    random = Random(f"replication {seed}")
    drawn_brokers = random.choice([3, 3, 4, 5])
    brokers = overrides.sizes.get("brokers", drawn_brokers)
    to_draw = overrides.kinds_to_draw(FAULT_KINDS)
    how_many = random.choice([2, 4, 8, len(to_draw)])
    kinds = sorted(random.sample(to_draw, min(how_many, len(to_draw))), key=FAULT_KINDS.index)
    lag_max_ms = random.choice([600, 1_500, 3_000])
    drawn = ReplicationParameters(
        seed=seed,
        seconds=random.choice([12, 20, 30]),
        brokers=brokers,
        directories=random.choice([1, 1, 2]),
        topics=tuple(_draw_topic(random, brokers) for _ in range(random.choice([1, 1, 2]))),
        segment_bytes=random.choice([2_500, 8_000, 1_000_000]),
        producers=random.choice([1, 2, 3]),
        readers=random.choice([1, 2]),
        think_time_ms=random.choice([50, 120, 300]),
        fault_interval_ms=random.choice([800, 2_000, 5_000]),
        administration_interval_ms=random.choice([1_500, 4_000, 20_000]),
        session_timeout_ms=random.choice([1_000, 2_000, 4_000]),
        heartbeat_interval_ms=random.choice([200, 400]),
        lag_max_ms=lag_max_ms,
        fetch_wait_ms=random.choice([50, 150, 300]),
        fetch_bytes_max=random.choice([200, 1_000, 100_000]),
        backoff_ms=random.choice([50, 200]),
        checkpoint_interval_ms=random.choice([500, 3_000]),
        metadata_delay_ms=random.choice([3, 30, 300]),
        fault_kinds=tuple(kinds),
        has_eligible_leaders=random.random() < 0.7,
        has_slow_disks=random.random() < 0.25,
        has_codec=random.random() < 0.1,
    )
    if random.random() < 0.2:
        drawn = replace(drawn, fault_kinds=(*drawn.fault_kinds, BIT_ROT))
    if random.random() < 0.25:
        drawn = replace(drawn, fault_kinds=(*drawn.fault_kinds, OLDER_COPY))
    drawn = replace(drawn, has_transactions=random.random() < 0.5)
    if random.random() < 0.3 and OLDER_COPY not in drawn.fault_kinds:
        damages = random.sample(DAMAGES, random.choice([1, 3, len(DAMAGES)]))
        drawn = replace(drawn, fault_kinds=(*drawn.fault_kinds, *damages))
    has_damages = not {BIT_ROT, OLDER_COPY, *DAMAGES}.isdisjoint(drawn.fault_kinds)
    if random.random() < 0.5 and not has_damages:
        drawn = replace(drawn, fault_kinds=(*drawn.fault_kinds, AWAY))
    asked_for = overrides.fault_kinds or ()
    later = [kind for kind in LATER_KINDS if random.random() < 0.3 or kind in asked_for]
    return replace(drawn, fault_kinds=(*drawn.fault_kinds, *later))


def _draw_topic(random: Random, brokers: int) -> TopicParameters:
    return TopicParameters(
        flush_before_ack=random.random() < 0.6,
        min_insync_replicas=random.choice([1, 2, 2]),
        replication_factor=random.choice([2, 3, 3, min(4, brokers)]),
        partitions=random.choice([1, 2]),
        has_unclean_elections=random.random() < 0.2,
    )
