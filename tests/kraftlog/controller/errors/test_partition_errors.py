"""What AlterPartition and AssignReplicasToDirs refuse, and in which order (CT-27, CT-42, CT-41)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

import pytest
import pytest_asyncio

from kraftbase.errors import ErrorCode
from kraftbase.ids import id_to_text
from kraftpb.v1 import admin_pb2
from kraftpb.v1.admin_pb2 import IsrMember, Operation
from tests.kraftlog.controller.errors.cases import Case, provokes, refused
from tests.kraftlog.controller.errors.test_topic_errors import reassigning
from tests.kraftlog.controller.errors.world import World, refusals, running_world
from tests.statemachine.builders import an_id, assigned, create

pytestmark = pytest.mark.asyncio(loop_scope="module")

STALE = 999_999
UNKNOWN = -1
"""The epoch of an ISR's member that the leader does not know."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """Brokers 1 to 3 alive, 4 fenced, 5 shutting down, 6 no longer registered; partitions that have changed.

    "clicks" is led by 2 and has replicas on 1, 2 and 3; "wide" is led by 1 and has replicas on 1, 4, 5 and 6; "lost"
    has no leader. Of "moving", led by 1, the replica on 1 will be removed and one on 3 added.
    """
    async with running_world(tmp_path_factory.mktemp("partitions")) as world:
        await world.with_brokers(1, 2, 3, 5, 6, 7, fenced=(4,))
        replicas = {"wide": [1, 4, 5, 6], "lost": [7], "of-five": [5, 1]}
        await world.done(create(assigned("clicks", {0: [1, 2, 3]})))
        await world.fence(1)
        await world.unfence(1)
        await world.done(create(*[assigned(topic, {0: on}) for topic, on in replicas.items()]))
        await world.begin_shutdown(5)
        await world.unregister(6)
        await world.fence(7)
        await world.settle()
        await world.done(altering(isr=[2, 3, 1])(world), create(assigned("moving", {0: [1, 2]})))
        await world.done(reassigning("moving", 2, 3))
        await world.settle()
        yield world


def altering(
    partition_id: int = 0,
    *,
    sender: int | None = None,
    broker_epoch: int | None = None,
    topic: str = "clicks",
    topic_id: bytes | None = None,
    leader_epoch: int = 0,
    partition_epoch: int = 0,
    isr: Sequence[int | tuple[int, int]] = (2, 3, 1),
    recovery_state: int = 0,
    repeated: int = 1,
) -> Callable[[World], Operation]:
    """A valid AlterPartition of the leader, except for the arguments; epochs relative to the known ones."""

    def make(world: World) -> Operation:
        known = world.partition(topic)
        broker_id = known.leader if sender is None else sender
        members = [member if isinstance(member, tuple) else (member, UNKNOWN) for member in isr]
        altered = admin_pb2.AlteredPartition(
            topic_id=world.topic_id(topic) if topic_id is None else topic_id,
            partition_id=partition_id,
            leader_epoch=known.leader_epoch + leader_epoch,
            partition_epoch=known.partition_epoch + partition_epoch,
            new_isr=[IsrMember(broker_id=member, broker_epoch=epoch) for member, epoch in members],
            leader_recovery_state=recovery_state,
        )
        epoch = world.epochs.get(broker_id, 0) if broker_epoch is None else broker_epoch
        request = admin_pb2.AlterPartitionRequest(
            broker_id=broker_id, broker_epoch=epoch, partitions=[altered] * repeated
        )
        return Operation(alter_partition=request)

    return make


def known_leader_epoch(world: World) -> str:
    return f"leader epoch {world.partition('clicks').leader_epoch}"


def known_partition_epoch(world: World) -> str:
    return f"partition epoch {world.partition('clicks').partition_epoch}"


def epoch_of_3(world: World) -> str:
    return f"epoch {world.epochs[3]}"


CLICKS = "partition 0 of topic 'clicks'"
WIDE = "partition 0 of topic 'wide'"
LOST = "partition 0 of topic 'lost'"

E = ErrorCode
STEPS = [
    Case(
        "CT-42 step 1: broker epoch",
        E.STALE_BROKER_EPOCH,
        altering(sender=2, broker_epoch=STALE),
        "broker 2",
        str(STALE),
    ),
    Case("CT-42 step 1: broker epoch", E.STALE_BROKER_EPOCH, altering(sender=9), "broker 9", "not registered"),
    Case("CT-42 step 2: topic", E.UNKNOWN_TOPIC_ID, altering(topic_id=an_id(9)), id_to_text(an_id(9))),
    Case("CT-42 step 2: topic", E.UNKNOWN_TOPIC_ID, altering(topic_id=b"short"), b"short".hex()),
    Case("CT-42 step 2: partition", E.UNKNOWN_TOPIC_OR_PARTITION, altering(77), "'clicks'", "no partition 77"),
    Case("CT-42 step 3: leader epoch", E.NOT_CONTROLLER, altering(leader_epoch=1), CLICKS, known_leader_epoch),
    Case("CT-42 step 3: partition epoch", E.NOT_CONTROLLER, altering(partition_epoch=1), CLICKS, known_partition_epoch),
    Case("CT-42 step 4: leader epoch", E.FENCED_LEADER_EPOCH, altering(leader_epoch=-1), CLICKS, known_leader_epoch),
    Case("CT-42 step 5: sender", E.INVALID_REQUEST, altering(sender=3), CLICKS, "led by broker 2", "not by broker 3"),
    Case(
        "CT-42 step 5: sender",
        E.INVALID_REQUEST,
        altering(topic="lost", sender=1, isr=[7]),
        LOST,
        "led by no broker",
        "broker 1",
    ),
    Case(
        "CT-42 step 6: partition epoch", E.INVALID_UPDATE_VERSION, altering(partition_epoch=-1), known_partition_epoch
    ),
    Case("CT-42 step 7: ISR", E.INVALID_REQUEST, altering(isr=[2, 5]), CLICKS, "broker 5", "no replica"),
    Case("CT-42 step 7: ISR", E.INVALID_REQUEST, altering(isr=[2, 3, 3]), CLICKS, "broker 3", "more than once"),
    Case(
        "CT-42 step 8: leader not in ISR",
        E.INVALID_REQUEST,
        altering(isr=[1, 3]),
        CLICKS,
        "broker 2",
        "lacks its leader",
    ),
    Case(
        "CT-42 step 8: leader not in ISR", E.INVALID_REQUEST, altering(isr=[]), CLICKS, "broker 2", "lacks its leader"
    ),
    Case("CT-42 step 9: recovery", E.INVALID_REQUEST, altering(recovery_state=1), CLICKS, "3 brokers", "recovering"),
    Case("CT-42 step 9: recovery", E.INVALID_REQUEST, altering(isr=[2], recovery_state=1), CLICKS, "is recovered"),
    Case("CT-42 step 9: recovery", E.INVALID_REQUEST, altering(recovery_state=7), CLICKS, "7 is no"),
    Case(
        "CT-42 step 10: unregistered",
        E.INELIGIBLE_REPLICA,
        altering(topic="wide", isr=[1, 6]),
        WIDE,
        "broker 6 is not registered",
    ),
    Case("CT-42 step 10: fenced", E.INELIGIBLE_REPLICA, altering(topic="wide", isr=[1, 4]), WIDE, "broker 4 is fenced"),
    Case(
        "CT-42 step 10: shutting down",
        E.INELIGIBLE_REPLICA,
        altering(topic="wide", isr=[1, 5]),
        WIDE,
        "broker 5 is shutting down",
    ),
    Case(
        "CT-42 step 10: broker epoch",
        E.INELIGIBLE_REPLICA,
        altering(isr=[2, 1, (3, STALE)]),
        CLICKS,
        "broker 3",
        epoch_of_3,
        str(STALE),
    ),
    Case("AlterPartition: repeated", E.INVALID_REQUEST, altering(repeated=2), CLICKS, "more than once"),
]


@refused(STEPS)
async def test_ct42_each_step_refuses_what_it_is_for(world: World, case: Case) -> None:
    await world.refuses(case)


WRONG_ISR = (3, 5, 4)
"""Two have no replica, one of them is shutting down and the other fenced; the leader is missing."""

# Each is wrong by its own step and by those after it, as far as they can be wrong together.
ORDER = [
    Case(
        "CT-42 step 1: broker epoch",
        E.STALE_BROKER_EPOCH,
        altering(77, sender=3, broker_epoch=STALE, topic_id=an_id(9), leader_epoch=1, isr=WRONG_ISR, recovery_state=1),
        str(STALE),
    ),
    Case(
        "CT-42 step 2: topic",
        E.UNKNOWN_TOPIC_ID,
        altering(77, sender=3, topic_id=an_id(9), leader_epoch=1, isr=WRONG_ISR, recovery_state=1),
        id_to_text(an_id(9)),
    ),
    Case(
        "CT-42 step 2: partition",
        E.UNKNOWN_TOPIC_OR_PARTITION,
        altering(77, sender=3, leader_epoch=-1, partition_epoch=1, isr=WRONG_ISR, recovery_state=1),
        "no partition 77",
    ),
    Case(
        "CT-42 step 3: partition epoch",
        E.NOT_CONTROLLER,
        altering(sender=3, leader_epoch=-1, partition_epoch=1, isr=WRONG_ISR, recovery_state=1),
        known_partition_epoch,
    ),
    Case(
        "CT-42 step 4: leader epoch",
        E.FENCED_LEADER_EPOCH,
        altering(sender=3, leader_epoch=-1, partition_epoch=-1, isr=WRONG_ISR, recovery_state=1),
        known_leader_epoch,
    ),
    Case(
        "CT-42 step 5: sender",
        E.INVALID_REQUEST,
        altering(sender=3, partition_epoch=-1, isr=WRONG_ISR, recovery_state=1),
        "not by broker 3",
    ),
    Case(
        "CT-42 step 6: partition epoch",
        E.INVALID_UPDATE_VERSION,
        altering(partition_epoch=-1, isr=WRONG_ISR, recovery_state=1),
        known_partition_epoch,
    ),
    Case("CT-42 step 7: ISR", E.INVALID_REQUEST, altering(isr=WRONG_ISR, recovery_state=1), "broker 5", "no replica"),
    Case(
        "CT-42 step 8: leader not in ISR",
        E.INVALID_REQUEST,
        altering(isr=[1, (3, STALE)], recovery_state=1),
        "lacks its leader",
    ),
    Case(
        "CT-42 step 9: recovery",
        E.INVALID_REQUEST,
        altering(isr=[2, (3, STALE)], recovery_state=1),
        "2 brokers",
        "recovering",
    ),
]


@refused(ORDER)
async def test_ct42_the_steps_are_taken_in_their_order(world: World, case: Case) -> None:
    await world.refuses(case)


def assigning(
    broker_id: int = 1,
    partition_id: int = 0,
    *,
    broker_epoch: int | None = None,
    topic_id: bytes | None = None,
    directory: bytes = an_id(901),
    repeated: int = 1,
) -> Callable[[World], Operation]:
    """A valid AssignReplicasToDirs, except for the arguments."""

    def make(world: World) -> Operation:
        assignment = admin_pb2.DirectoryAssignment(
            topic_id=world.topic_id("clicks") if topic_id is None else topic_id,
            partition_id=partition_id,
            directory_id=directory,
        )
        epoch = world.epochs.get(broker_id, 0) if broker_epoch is None else broker_epoch
        request = admin_pb2.AssignReplicasToDirsRequest(
            broker_id=broker_id, broker_epoch=epoch, assignments=[assignment] * repeated
        )
        return Operation(assign_replicas_to_dirs=request)

    return make


A = "AssignReplicasToDirs: "


@refused(
    [
        Case(A + "epoch", E.STALE_BROKER_EPOCH, assigning(broker_epoch=STALE), "broker 1", str(STALE)),
        Case(A + "epoch", E.STALE_BROKER_EPOCH, assigning(9), "broker 9", "not registered"),
        Case(A + "topic", E.UNKNOWN_TOPIC_ID, assigning(topic_id=an_id(9)), id_to_text(an_id(9))),
        Case(A + "partition", E.UNKNOWN_TOPIC_OR_PARTITION, assigning(1, 77), "'clicks'", "no partition 77"),
        Case(A + "no replica", E.NOT_LEADER_OR_FOLLOWER, assigning(7), CLICKS, "broker 7"),
        Case(A + "directory", E.INVALID_REQUEST, assigning(directory=b"short"), CLICKS, b"short".hex()),
        Case(A + "directory", E.INVALID_REQUEST, assigning(directory=bytes(15) + b"\4"), CLICKS, "00000004"),
        Case(A + "repeated", E.INVALID_REQUEST, assigning(repeated=2), CLICKS, "more than once"),
    ]
)
async def test_ct27_what_a_broker_may_not_say_of_its_directories_is_refused(world: World, case: Case) -> None:
    await world.refuses(case)


@provokes("CT-41: reassignment completed, leader moved", ErrorCode.NEW_LEADER_ELECTED)
async def test_ct41_who_completes_a_reassignment_and_has_to_go_is_told_and_the_record_is_written(world: World) -> None:
    before = world.log.next_append_offset
    result = await world.run(altering(topic="moving", isr=[1, 2, 3])(world))
    ((error, message),) = refusals(result)
    assert error is ErrorCode.NEW_LEADER_ELECTED
    assert "partition 0 of topic 'moving'" in message
    assert "led by broker 2" in message
    assert await world.written_since(before) == ["partition_change"]
    assert result.end_offset == world.log.next_append_offset
    await world.learn()
    partition = world.partition("moving")
    assert (partition.leader, list(partition.replicas), list(partition.isr)) == (2, [2, 3], [2, 3])
