"""Brokers that come, go and fail in any order, in the middle of each other's pages and of changes of leadership.

Whatever happens, no replica that may have lost committed records is elected cleanly (CT-50, CT-56). When everything has
settled each partition is led if it can be, by a broker that may lead, and no fenced broker is in sync (CT-31).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.ids import UNASSIGNED_DIRECTORY
from kraftbase.sentinels import NO_LEADER
from kraftlog.controller.rules.partition_change import RECOVERED
from kraftpb.v1.admin_pb2 import AlteredPartition, AlterPartitionRequest, IsrMember, Operation
from kraftpb.v1.metadata_pb2 import PartitionRecord, RegisterBrokerRecord
from tests.effort import examples
from tests.kraftlog.controller.lives import beat, brokers, fence, pages_held, partitions, quiet, unregister
from tests.statemachine.builders import (
    BROKER,
    alive,
    alter,
    alteration,
    an_id,
    assigned,
    create,
    register,
    registration,
)
from tests.statemachine.conftest import Bench, memory_bench
from tests.statemachine.hand_time import HandTime
from tests.statemachine.waiting import turns, until

Step = tuple[str, int, int]
Replica = tuple[int, bytes, int]
"""A broker's, of a partition."""

BROKER_IDS = (1, 2, 3)
TOPICS = [
    assigned("three", {0: [1, 2, 3], 1: [2, 3, 1]}),
    assigned("two", {0: [1, 2], 1: [2, 1], 2: [3, 1]}),
    assigned("one", {0: [1], 1: [2]}),
]


def directories_of(broker_id: int) -> list[int]:
    return [900 + broker_id, 950 + broker_id]


class World:
    """A controller, and the state of the data."""

    def __init__(self, bench: Bench, time: HandTime) -> None:
        self.bench, self.time = bench, time
        self.lost: set[Replica] = set()
        """Replicas that may lack what they had, and have not joined an ISR since."""
        self.before: dict[tuple[bytes, int], PartitionRecord] = {}
        self.incarnations = 1_000_000

    async def start(self) -> None:
        self.bench.log.lead()
        await self.bench.lead()
        for broker_id in BROKER_IDS:
            registered = (
                await self.bench.done(register(broker_id, log_dirs=directories_of(broker_id)))
            ).register_broker
            await self.bench.done(alive(broker_id, registered.broker_epoch))
        await self.bench.done(alter(alteration("", "min.insync.replicas", "2", BROKER)))
        await self.bench.done(create(*TOPICS))
        await quiet(self.bench)

    # --- what happens -------------------------------------------------------------------------------------------------

    async def step(self, step: Step) -> None:
        kind, broker_id, number = step
        bench = self.bench
        broker = bench.controller.state.broker(broker_id)
        match kind:
            case "beat" | "want fence" | "want shutdown" | "directory fails":
                if broker is not None:
                    offline = [an_id(950 + broker_id)] if kind == "directory fails" else []
                    wishes = {"fence": kind == "want fence", "shut_down": kind == "want shutdown"}
                    self.take(beat(bench, broker_id, offline=offline, **wishes))
            case "fence":
                self.take(fence(broker_id))
            case "unregister":
                self.take(unregister(broker_id))
            case "register" | "register cleanly":
                self.register(broker_id, broker if kind == "register cleanly" else None)
            case "alter":
                self.alter(number)
            case "min isr":
                self.take(alter(alteration("", "min.insync.replicas", str(1 + number % 3), BROKER)))
            case "pages":
                self.pages(number)
            case "commit":
                bench.controller.schedule()
                bench.log.commit()
                await turns(5)
            case "take over":
                await self.take_over()
            case "refuse":
                bench.log.refusal = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "no room")
            case "time":
                self.time.advance((100, 2_000, 9_000)[number % 3])
        self.look()

    def take(self, operation: Operation) -> None:
        self.bench.controller.process(operation, lambda result: None)

    def register(self, broker_id: int, cleanly_after: RegisterBrokerRecord | None) -> None:
        """Another incarnation, which finds that the one before shut down cleanly, or has an empty disk."""
        self.incarnations += 1
        request = registration(
            broker_id,
            self.incarnations,
            directories_of(broker_id),
            previous_broker_epoch=None if cleanly_after is None else cleanly_after.broker_epoch,
        )
        self.take(Operation(register_broker=request))
        registered = self.bench.controller.state.broker(broker_id)
        is_new = registered is not None and registered.incarnation_id == an_id(self.incarnations)
        if is_new and cleanly_after is None:
            for partition in self.bench.controller.state.all_partitions():
                if broker_id in partition.replicas:
                    self.lost.add((broker_id, partition.topic_id, partition.partition_id))

    def alter(self, number: int) -> None:
        """A leader finds another ISR: a replica that joins it has what the leader has."""
        state = self.bench.controller.state
        led = [partition for partition in state.all_partitions() if partition.leader != NO_LEADER]
        if not led:
            return
        partition = led[number % len(led)]
        isr = [m for m in partition.replicas if m == partition.leader or (number >> m) & 1]
        registered = {member: state.broker(member) for member in isr}
        members = [IsrMember(broker_id=m, broker_epoch=b.broker_epoch) for m, b in registered.items() if b is not None]
        leader = state.broker(partition.leader)
        altered = AlteredPartition(
            topic_id=partition.topic_id,
            partition_id=partition.partition_id,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            new_isr=members,
        )
        epoch = -1 if leader is None else leader.broker_epoch
        request = AlterPartitionRequest(broker_id=partition.leader, broker_epoch=epoch, partitions=[altered])
        self.take(Operation(alter_partition=request))
        after = state.partition(partition.topic_id, partition.partition_id)
        for member in set(() if after is None else after.isr) - set(partition.isr):
            self.lost.discard((member, partition.topic_id, partition.partition_id))

    def pages(self, count: int) -> None:
        controller = self.bench.controller
        for _ in range(count % 6):
            if controller.has_pages:
                controller._paged_writes.next_page()
                self.look()
        controller.schedule()

    async def take_over(self) -> None:
        """This controller's pages are forgotten; the next one starts over with what it finds."""
        self.bench.controller.schedule()
        self.bench.log.lose_leadership(keep=True)
        await until(lambda: not self.bench.controller.is_active)
        self.bench.log.lead()
        await self.bench.lead()

    async def rest(self) -> None:
        """Everything pending has been done, and is committed."""
        bench = self.bench
        bench.log.refusal, bench.log.auto_commit = None, True
        bench.controller.schedule()
        bench.log.commit()
        while bench.controller.has_pages:
            self.time.advance(100)  # pages that were refused wait this long
            await turns()
        await quiet(bench)
        self.look()

    # --- what must hold -----------------------------------------------------------------------------------------------

    def look(self) -> None:
        """No clean election took a leader that may lack something."""
        for partition in self.bench.controller.state.all_partitions():
            key = (partition.topic_id, partition.partition_id)
            before = self.before.get(key)
            if before is not None and partition.leader not in (NO_LEADER, before.leader):
                if partition.leader_recovery_state == RECOVERED:
                    assert (partition.leader, *key) not in self.lost, partition
                else:
                    self.lost.discard((partition.leader, *key))  # what it has is the truth from now on
            self.before[key] = partition

    def check_rest(self) -> None:
        registered, context = brokers(self.bench), self.bench.controller._context
        assert not any(context.departing.values())
        for broker_id, broker in registered.items():
            assert (context.heartbeats.last_contact_ms(broker_id) is None) == broker.fenced
        for partition in partitions(self.bench):
            able = set(self.able(partition, registered))
            assert partition.leader == NO_LEADER or partition.leader in able, partition
            assert not [m for m in partition.isr if m not in registered or registered[m].fenced], partition
            candidates = set(partition.isr or partition.eligible_leader_replicas)
            assert partition.leader != NO_LEADER or not candidates & able, partition
            for member in partition.eligible_leader_replicas:
                assert (member, partition.topic_id, partition.partition_id) not in self.lost, partition

    def able(self, partition: PartitionRecord, registered: dict[int, RegisterBrokerRecord]) -> Iterator[int]:
        """The replicas that may lead as far as their brokers are concerned (CT-50)."""
        for member, directory in zip(partition.replicas, partition.directories, strict=True):
            broker = registered.get(member)
            if broker is None or broker.fenced or broker.in_controlled_shutdown:
                continue
            if directory in (UNASSIGNED_DIRECTORY, *broker.log_dirs):
                yield member


KINDS = (
    *("beat",) * 8,
    *("pages",) * 10,
    *("register", "alter") * 4,
    *("commit",) * 3,
    *("fence", "want shutdown", "register cleanly", "take over", "time") * 2,
    *("want fence", "unregister", "min isr", "refuse", "directory fails"),
)
STEPS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.sampled_from(BROKER_IDS), st.integers(0, 60)), min_size=20, max_size=60
)


@contextmanager
def small_pages() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kraftlog.controller.rules.pages.PAGE_PARTITIONS", 2)
        yield patch


async def live(directory: Path, rounds: Sequence[Sequence[Step]]) -> None:
    time = HandTime()
    async with memory_bench(directory / "metadata.db", runtime=time) as bench:
        world = World(bench, time)
        await world.start()
        with small_pages() as patch:
            for steps in rounds:
                with pages_held(patch):
                    bench.log.auto_commit = False
                    for step in steps:
                        await world.step(step)
                await world.rest()
                world.check_rest()
            for _ in range(3):  # a shutdown waits for the others' heartbeats, then one ends it
                for broker_id in brokers(bench):
                    await bench.run(beat(bench, broker_id))
                    await quiet(bench)
        for broker in brokers(bench).values():
            assert not broker.fenced, "a broker that is there and well is never unfenced"


@settings(max_examples=examples(40), deadline=None)
@given(rounds=st.lists(STEPS, min_size=1, max_size=3))
def test_ct31_ct56_whatever_brokers_do_no_clean_election_loses_data_and_all_come_to_rest(
    rounds: list[list[Step]],
) -> None:
    with TemporaryDirectory() as directory:
        asyncio.run(live(Path(directory), rounds))
