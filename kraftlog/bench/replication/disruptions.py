"""The measurements in which a broker is killed, shut down, stopped, or started again."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kraftlog.bench.broker.client_process import run_load
from kraftlog.bench.broker.comparison import Figures
from kraftlog.bench.broker.experiment import Experiment
from kraftlog.bench.broker.experiments import LARGE_BATCH_BYTES
from kraftlog.bench.broker.loads.consume import Consume
from kraftlog.bench.broker.loads.interruption import Interruption
from kraftlog.bench.broker.loads.produce import Produce
from kraftlog.bench.broker.system import System
from kraftlog.bench.process_usage import is_stopped, processor_seconds
from kraftlog.bench.replication.experiments import Sizes, topic_configs

RECORDS_PER_SECOND: Final = 5
"""The rate of each partition."""
STOPPED_PARTITIONS: Final = 1
"""The partitions whose follower is stopped. A broker answers the requests of a connection in order, so with several
partitions the time of a later one would include the wait for an earlier one."""
WARM_UP_SECONDS: Final = 3.0
POLL_SECONDS: Final = 0.005
BYTES_PER_MEGABYTE: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Blow:
    """The signal that a broker gets."""

    number: signal.Signals
    is_leader: bool
    """Whether the broker leads the partitions, or follows them all."""
    seconds: float
    """How long records are sent after the signal, at least."""


KILLED: Final = Blow(signal.SIGKILL, is_leader=True, seconds=1.0)
SHUT_DOWN: Final = Blow(signal.SIGTERM, is_leader=True, seconds=6.0)
STOPPED: Final = Blow(signal.SIGSTOP, is_leader=False, seconds=1.0)


class BlowExperiment(Experiment):
    """A client produces to a new topic, whose leader is always the same broker, and sends the signal."""

    is_warmed_up = False

    def __init__(self, name: str, sizes: Sizes, blow: Blow, partitions: int) -> None:
        super().__init__(name, sizes.rounds)
        self._blow = blow
        self._partitions = partitions

    async def measure(self, system: System) -> Figures:
        """Measure once; afterwards all brokers run, and are in sync."""
        blow = self._blow
        replicas = system.broker_ids
        victim = replicas[0 if blow.is_leader else -1]
        others = [broker_id for broker_id in replicas if broker_id != victim]
        configs = topic_configs(system, is_flushed=False)
        await system.topics.create(self.name, self._partitions, configs, replicas)
        await system.topics.until_in_sync(self.name, replicas)
        load = Interruption(
            **self.of_load(system),
            partitions=self._partitions,
            records_per_second=RECORDS_PER_SECOND,
            warm_up_seconds=WARM_UP_SECONDS,
            victim_pid=system.pid(victim),
            signal_number=blow.number,
            seconds=blow.seconds,
        )
        figures = dict(await self._executed(system, load, others))
        if blow.number is signal.SIGSTOP:
            os.kill(system.pid(victim), signal.SIGCONT)
        else:
            await system.end(victim, blow.number)
            await system.start(victim)
        await system.topics.until_in_sync(self.name, replicas)
        await system.topics.delete(self.name)
        return figures

    async def _executed(self, system: System, load: Interruption, others: list[int]) -> Figures:
        return await run_load(load)


class StopExperiment(BlowExperiment):
    """A follower is stopped, and leaves the ISR."""

    async def _executed(self, system: System, load: Interruption, others: list[int]) -> Figures:
        """Also measure when the follower has left every ISR. A client polls for that."""
        carrying = asyncio.create_task(run_load(load))
        try:
            await _until(lambda: is_stopped(load.victim_pid), carrying)
            stopped_at = time.perf_counter()
            await system.topics.until_in_sync(self.name, others)
            seconds = time.perf_counter() - stopped_at
            return {**await carrying, "out_of_isr_seconds": round(seconds, 3)}
        finally:
            carrying.cancel()


class CatchUpExperiment(Experiment):
    """A follower is down while records are produced; a client consumes them; then the follower fetches them.

    The time is counted from the first byte that the follower appends, without its start, until it is in the ISR again.
    """

    is_warmed_up = False

    def __init__(self, name: str, sizes: Sizes) -> None:
        super().__init__(name, sizes.rounds)
        self._behind_bytes = sizes.behind_bytes

    async def measure(self, system: System) -> Figures:
        """Measure once, with a new topic of one partition."""
        replicas = system.broker_ids
        leader, victim = replicas[0], replicas[-1]
        configs = topic_configs(system, is_flushed=False)
        await system.topics.create(self.name, 1, configs, replicas)
        await system.topics.until_in_sync(self.name, replicas)
        await system.end(victim, signal.SIGTERM)
        of_load = self._of_load_without(system, victim)
        await run_load(Produce(**of_load, batch_bytes=LARGE_BATCH_BYTES, total_bytes=self._behind_bytes))
        consumed = (await run_load(Consume(**of_load)))["megabytes_per_second"]
        used, started = processor_seconds(system.pid(leader)), time.perf_counter()
        starting = asyncio.create_task(system.start(victim))
        await _until(lambda: system.topics.bytes_in(self.name, system.data_path(victim)) > 0, starting)
        began = time.perf_counter()
        await system.topics.until_in_sync(self.name, replicas)
        ended = time.perf_counter()
        used = processor_seconds(system.pid(leader)) - used + processor_seconds(system.pid(victim))
        await starting
        await system.topics.delete(self.name)
        speed = self._behind_bytes / BYTES_PER_MEGABYTE / (ended - began)
        return {
            "megabytes_per_second": round(speed, 2),
            "consumed_megabytes_per_second": consumed,
            "to_consume": round(speed / consumed, 3),
            "start_seconds": round(ended - started, 2),
            "processor_seconds_per_gigabyte": round(used / (self._behind_bytes / 1e9), 3),
        }

    def _of_load_without(self, system: System, victim: int) -> dict[str, Any]:
        """The arguments of a load while a broker is down."""
        pids = [system.pid(broker_id) for broker_id in system.broker_ids if broker_id != victim]
        return {**self.of_load(system), "broker_pids": pids}


async def _until(holds: Callable[[], bool], meanwhile: asyncio.Task[Any]) -> None:
    """Return when the condition holds. Raises what the task raises."""
    while True:
        if holds():
            return
        if meanwhile.done():
            meanwhile.result()
        await asyncio.sleep(POLL_SECONDS)


def disruptive_experiments(sizes: Sizes) -> Mapping[str, Experiment]:
    """Return the experiments with the defaults of both systems."""
    found: list[Experiment] = [
        BlowExperiment("leader-killed", sizes, KILLED, sizes.partitions),
        BlowExperiment("controlled-shutdown", sizes, SHUT_DOWN, sizes.partitions),
        CatchUpExperiment("catch-up", sizes),
    ]
    return {experiment.name: experiment for experiment in found}


def lagging_experiments(sizes: Sizes) -> Mapping[str, Experiment]:
    """Return the experiments with a smaller `replica.lag.time.max.ms`."""
    return {"follower-stopped": StopExperiment("follower-stopped", sizes, STOPPED, STOPPED_PARTITIONS)}
