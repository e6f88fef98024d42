"""The parameters that a seed draws for a world of one broker and its logs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Final

from kraftlog.sim.broker_log.file_damage import DAMAGES
from kraftlog.sim.engine.parameters import Overrides, Parameters
from kraftlog.storage.config import NO_LIMIT

FAULT_KINDS: Final = (
    "process: shut down",
    "process: killed",
    "process: killed between two operations",
    "process: killed at its start",
    "power: cut, nothing unsynced kept",
    "power: cut, a torn write kept",
    "power: cut, sectors kept in any order",
    "power: cut, pages kept in any order",
    "disk: full",
    "disk: a directory fails",
    "disk: slow",
    "clock: the wall clock jumps ahead",
    "clock: the wall clock jumps back",
    "network: answers are lost",
    "disk: a bit of an index changes",
)
"""In the order in which seeds draw them. Add new kinds at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicParameters:
    """The settings of one topic's logs."""

    flush_before_ack: bool
    flush_ms: int
    segment_bytes: int
    segment_ms: int
    segment_index_bytes: int
    index_interval_bytes: int
    retention_ms: int
    retention_bytes: int
    preallocates: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogParameters(Parameters):
    """The parameters of one run."""

    directories: int
    partitions: int
    """The number of partitions of each topic."""
    topics: tuple[TopicParameters, ...]
    producers: int
    readers: int
    think_time_ms: int
    """The average time that a producer waits between batches."""
    fault_interval_ms: int
    maintain_interval_ms: int
    checkpoint_interval_ms: int
    open_files_max: int
    has_transactions: bool
    has_slow_disk: bool
    """Whether the disk is slow for the whole run. Flushes run in the disk thread."""


def draw(seed: int, overrides: Overrides) -> LogParameters:
    """Return the parameters of the run with that seed."""
    random = Random(f"broker log {seed}")
    to_draw = overrides.kinds_to_draw(FAULT_KINDS)
    how_many = random.choice([2, 4, len(to_draw)])
    kinds = sorted(random.sample(to_draw, min(how_many, len(to_draw))), key=FAULT_KINDS.index)
    parameters = LogParameters(
        seed=seed,
        seconds=random.choice([30, 60, 120]),
        directories=random.choice([1, 1, 2]),
        partitions=random.choice([1, 2]),
        topics=tuple(_draw_topic(random) for _ in range(random.choice([1, 2]))),
        producers=random.choice([2, 4]),
        readers=random.choice([1, 3]),
        think_time_ms=random.choice([30, 100, 400]),
        fault_interval_ms=random.choice([1_500, 4_000, 10_000]),
        maintain_interval_ms=random.choice([1_000, 5_000]),
        checkpoint_interval_ms=random.choice([500, 3_000, 20_000]),
        open_files_max=random.choice([4, 64]),
        fault_kinds=tuple(kinds),
        has_transactions=random.random() < 0.5,
        has_slow_disk=random.random() < 0.3,
    )
    if random.random() < 0.4:
        damages = random.sample(DAMAGES, random.choice([1, 3, len(DAMAGES)]))
        parameters = replace(parameters, fault_kinds=(*parameters.fault_kinds, *damages))
    return parameters


def _draw_topic(random: Random) -> TopicParameters:
    return TopicParameters(
        flush_before_ack=random.random() < 0.7,
        flush_ms=random.choice([NO_LIMIT, 2_000]),
        segment_bytes=random.choice([900, 1_500, 6_000, 1_000_000]),
        segment_ms=random.choice([1_000, 7 * 86_400_000]),
        segment_index_bytes=random.choice([60, 10_000]),
        index_interval_bytes=random.choice([0, 150, 4_096]),
        retention_ms=random.choice([-1, 120_000, 86_400_000]),
        retention_bytes=random.choice([-1, -1, 3_000]),
        preallocates=random.random() < 0.2,
    )
