"""The measurements in which all brokers run: produce, and one record at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kraftlog.bench.broker.client_process import run_load
from kraftlog.bench.broker.comparison import Figures
from kraftlog.bench.broker.experiment import Experiment
from kraftlog.bench.broker.loads.one_record import OneRecord
from kraftlog.bench.broker.loads.produce import Produce
from kraftlog.bench.broker.system import System

BROKERS: Final = 3
BATCH_BYTES: Final = 65_536
IN_SYNC_MIN: Final = {"min.insync.replicas": "2"}
"""A config of every topic, on both systems."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much is measured."""

    pairs: int = 7
    """The pairs of produce and of single records."""
    rounds: int = 5
    """The pairs of the measurements that end or stop a broker."""
    total_bytes: int = 1_000_000_000
    """The bytes of each unflushed produce figure."""
    flushed_bytes: int = 200_000_000
    """The bytes of each flushed produce figure."""
    records: int = 2_000
    """The number of records that are produced one at a time."""
    partitions: int = 100
    """The partitions of the broker that is killed or shut down."""
    behind_bytes: int = 2_000_000_000
    """How many bytes the follower that catches up has missed."""

    @property
    def warm_up_records(self) -> int:
        """The number of records that are produced one at a time and not counted."""
        return max(1, self.records // 5)


def topic_configs(system: System, *, is_flushed: bool) -> dict[str, str]:
    """Return the configs of a topic that flushes records on every replica before it acknowledges them, or on none."""
    return {**(system.flushed if is_flushed else system.unflushed), **IN_SYNC_MIN}


class ProduceExperiment(Experiment):
    """Produces to a new topic each time, and deletes it."""

    def __init__(self, name: str, sizes: Sizes, *, partitions: int, is_flushed: bool) -> None:
        super().__init__(name, sizes.pairs)
        self._partitions = partitions
        self._is_flushed = is_flushed
        self._total_bytes = sizes.flushed_bytes if is_flushed else sizes.total_bytes

    async def measure(self, system: System) -> Figures:
        """Produce once."""
        configs = topic_configs(system, is_flushed=self._is_flushed)
        await system.topics.create(self.name, self._partitions, configs)
        load = Produce(
            **self.of_load(system),
            batch_bytes=BATCH_BYTES,
            total_bytes=self._total_bytes,
            partitions=self._partitions,
        )
        figures = await run_load(load)
        await system.topics.delete(self.name)
        return figures


class OneRecordExperiment(Experiment):
    """Produces and consumes one record at a time, in a new topic of one partition."""

    def __init__(self, name: str, sizes: Sizes, *, is_flushed: bool) -> None:
        super().__init__(name, sizes.pairs)
        self._sizes = sizes
        self._is_flushed = is_flushed

    async def measure(self, system: System) -> Figures:
        """Produce and consume once."""
        await system.topics.create(self.name, configs=topic_configs(system, is_flushed=self._is_flushed))
        sizes = self._sizes
        load = OneRecord(**self.of_load(system), records=sizes.records, warm_up_records=sizes.warm_up_records)
        figures = await run_load(load)
        await system.topics.delete(self.name)
        return figures


def steady_experiments(sizes: Sizes) -> Mapping[str, Experiment]:
    """Return the experiments in which every broker runs."""
    found: list[Experiment] = [
        ProduceExperiment(
            f"produce-{partitions}{'-flushed' if is_flushed else ''}",
            sizes,
            partitions=partitions,
            is_flushed=is_flushed,
        )
        for is_flushed in (False, True)
        for partitions in (1, 10)
    ]
    found += [
        OneRecordExperiment("one-record", sizes, is_flushed=False),
        OneRecordExperiment("one-record-flushed", sizes, is_flushed=True),
    ]
    return {experiment.name: experiment for experiment in found}
