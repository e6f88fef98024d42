"""How each figure of one broker is measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kraftlog.bench.broker.client_process import run_load
from kraftlog.bench.broker.comparison import Figures
from kraftlog.bench.broker.experiment import Experiment
from kraftlog.bench.broker.loads.connections import Connections
from kraftlog.bench.broker.loads.consume import Consume
from kraftlog.bench.broker.loads.one_record import OneRecord
from kraftlog.bench.broker.loads.produce import Produce
from kraftlog.bench.broker.system import System

SMALL_BATCH_BYTES: Final = 65_536
LARGE_BATCH_BYTES: Final = 1_000_000
"""confluent-kafka's default, "1 MB", just below the brokers' `max.message.bytes`."""
CONNECTION_PARTITIONS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much is measured."""

    pairs: int = 7
    total_bytes: int = 1_000_000_000
    """The bytes of each produce figure, and of the hot partition that is consumed."""
    cold_bytes: int = 4_000_000_000
    records: int = 2_000
    """The number of records that are produced one at a time."""
    connections: int = 500
    records_per_second: int = 20
    """The rate of each connection."""
    seconds: float = 10.0
    """How long the connections send."""
    partitions: int = 2_000
    """The number of idle partitions."""
    idle_seconds: float = 30.0
    hostile_seconds: float = 3.0
    """How long each hostile request is sent again and again."""
    started_partitions: int = 2_000
    """The number of partitions with which a broker starts; it also starts with five times as many."""
    changed_partitions: int = 1_000
    """How many partitions are created at once; 30 % of them change their leader, and twice as many are deleted."""

    @property
    def warm_up_records(self) -> int:
        """The number of records that are produced one at a time and not counted."""
        return max(1, self.records // 5)

    @property
    def warm_up_seconds(self) -> float:
        """How long the connections send records that are not counted."""
        return self.seconds / 5


class BrokerExperiment(Experiment):
    """An experiment with its sizes."""

    def __init__(self, name: str, sizes: Sizes) -> None:
        super().__init__(name, sizes.pairs)
        self.sizes = sizes


class ProduceExperiment(BrokerExperiment):
    """Produces to a new topic each time, and deletes it."""

    def __init__(self, name: str, sizes: Sizes, *, batch_bytes: int, is_flushed: bool) -> None:
        super().__init__(name, sizes)
        self._batch_bytes = batch_bytes
        self._is_flushed = is_flushed

    async def measure(self, system: System) -> Figures:
        """Produce once."""
        await system.topics.create(self.name, configs=system.flushed if self._is_flushed else system.unflushed)
        load = Produce(**self.of_load(system), batch_bytes=self._batch_bytes, total_bytes=self.sizes.total_bytes)
        figures = await run_load(load)
        await system.topics.delete(self.name)
        return figures


class ConsumeExperiment(BrokerExperiment):
    """Consumes a topic that is filled once."""

    def __init__(self, name: str, sizes: Sizes, *, total_bytes: int, is_cold: bool) -> None:
        super().__init__(name, sizes)
        self._total_bytes = total_bytes
        self._is_cold = is_cold

    async def prepare(self, system: System) -> None:
        """Fill the topic."""
        await system.topics.create(self.name, configs=system.unflushed)
        await run_load(Produce(**self.of_load(system), batch_bytes=LARGE_BATCH_BYTES, total_bytes=self._total_bytes))

    async def measure(self, system: System) -> Figures:
        """Consume the topic once from its beginning; if it is cold, from the disk."""
        if self._is_cold:
            await system.topics.drop_from_page_cache(self.name)
        return await run_load(Consume(**self.of_load(system)))

    async def clean_up(self, system: System) -> None:
        """Delete the topic."""
        await system.topics.delete(self.name)


class OneRecordExperiment(BrokerExperiment):
    """Produces and consumes one record at a time, in a new topic."""

    def __init__(self, name: str, sizes: Sizes, *, is_flushed: bool) -> None:
        super().__init__(name, sizes)
        self._is_flushed = is_flushed

    async def measure(self, system: System) -> Figures:
        """Produce and consume once."""
        await system.topics.create(self.name, configs=system.flushed if self._is_flushed else system.unflushed)
        sizes = self.sizes
        load = OneRecord(**self.of_load(system), records=sizes.records, warm_up_records=sizes.warm_up_records)
        figures = await run_load(load)
        await system.topics.delete(self.name)
        return figures


class ConnectionsExperiment(BrokerExperiment):
    """Sends records to a new topic, over many connections at a fixed rate, without flushes."""

    async def measure(self, system: System) -> Figures:
        """Send for some seconds."""
        await system.topics.create(self.name, CONNECTION_PARTITIONS, system.unflushed)
        load = Connections(
            **self.of_load(system),
            connections=self.sizes.connections,
            records_per_second=self.sizes.records_per_second,
            partitions=CONNECTION_PARTITIONS,
            seconds=self.sizes.seconds,
            warm_up_seconds=self.sizes.warm_up_seconds,
        )
        figures = await run_load(load)
        await system.topics.delete(self.name)
        return figures


def experiments(sizes: Sizes) -> Mapping[str, Experiment]:
    """Return the experiments that run in pairs on shared brokers, by the names of their figures."""
    produced = {"64k": SMALL_BATCH_BYTES, "1m": LARGE_BATCH_BYTES}
    found: list[Experiment] = [
        ProduceExperiment(
            f"produce-{size}{'-flushed' if is_flushed else ''}", sizes, batch_bytes=count, is_flushed=is_flushed
        )
        for is_flushed in (False, True)
        for size, count in produced.items()
    ]
    found += [
        ConsumeExperiment("consume-hot", sizes, total_bytes=sizes.total_bytes, is_cold=False),
        ConsumeExperiment("consume-cold", sizes, total_bytes=sizes.cold_bytes, is_cold=True),
        OneRecordExperiment("one-record", sizes, is_flushed=False),
        OneRecordExperiment("one-record-flushed", sizes, is_flushed=True),
        ConnectionsExperiment("connections", sizes),
    ]
    return {experiment.name: experiment for experiment in found}
