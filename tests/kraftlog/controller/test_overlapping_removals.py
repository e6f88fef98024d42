"""Brokers that leave and return while the pages of their last departure are still pending (CT-12, CT-31, CT-56)."""

from __future__ import annotations

import pytest

from kraftbase.errors import ErrorCode
from kraftpb.v1 import admin_pb2
from tests.kraftlog.controller.lives import (
    appended_records,
    beat,
    brokers,
    fence,
    pages_held,
    partitions,
    quiet,
    unregister,
    with_topic,
)
from tests.statemachine.builders import alter, alteration, heartbeat, register, registration
from tests.statemachine.conftest import Bench
from tests.statemachine.waiting import until


async def another_leads_in_between(bench: Bench) -> None:
    """This controller stops where it is, and starts over when what it has appended is committed."""
    bench.log.lose_leadership(keep=True)
    await until(lambda: not bench.controller.is_active)
    bench.log.lead()
    await bench.lead()


async def test_ct31_a_broker_is_unfenced_when_all_its_departures_are_done(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await with_topic(bench, {0: [1, 2]}, min_isr=2)
    with pages_held(monkeypatch):
        await bench.submit(fence(1))
        await bench.submit(register(1, incarnation=77))
        controller = bench.controller
        while len(controller._paged_writes._jobs) > 1:
            controller._paged_writes.next_page()
        await bench.submit(beat(bench, 1))
        registered = controller.state.broker(1)
        assert registered is not None and registered.fenced
    await quiet(bench)
    assert list(partitions(bench)[0].eligible_leader_replicas) == []
    await bench.done(beat(bench, 1))
    assert not brokers(bench)[1].fenced


async def test_ct56_what_a_broker_may_have_lost_is_remembered_until_its_partitions_know(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await with_topic(bench, {0: [1, 2]}, min_isr=2)
    await bench.done(fence(1))
    assert list(partitions(bench)[0].eligible_leader_replicas) == [1]
    with pages_held(monkeypatch):
        await bench.submit(register(1, incarnation=77))
        lost = bench.controller.state.broker(1)
        assert lost is not None and lost.unclean_shutdown
        # It shuts down cleanly before its partitions were read, and so does the controller.
        again = registration(1, 78, previous_broker_epoch=lost.broker_epoch)
        await bench.submit(admin_pb2.Operation(register_broker=again))
        await another_leads_in_between(bench)
    assert brokers(bench)[1].unclean_shutdown
    await quiet(bench)
    await bench.done(beat(bench, 1))
    assert not brokers(bench)[1].fenced
    assert list(partitions(bench)[0].eligible_leader_replicas) == []


async def test_ct38_the_next_controller_knows_an_older_disk(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def with_epoch(incarnation: int, epoch: int) -> admin_pb2.Operation:
        asked = registration(1, incarnation)
        asked.log_dir_epochs.append(epoch)
        return admin_pb2.Operation(register_broker=asked)

    await with_topic(bench, {0: [1]})
    epochs = []
    for incarnation in (77, 78):
        await bench.done(fence(1))
        await bench.done(with_epoch(incarnation, brokers(bench)[1].broker_epoch))
        await bench.done(beat(bench, 1))
        await quiet(bench)
        assert partitions(bench)[0].leader == 1
        epochs.append(brokers(bench)[1].broker_epoch)
    await bench.done(fence(1))
    assert list(partitions(bench)[0].eligible_leader_replicas) == [1]
    with pages_held(monkeypatch):
        await bench.submit(with_epoch(79, epochs[0]))
        older = bench.controller.state.broker(1)
        assert older is not None and list(older.older_log_dirs) == list(older.log_dirs)
        # Its files have the new epoch, and it registers once more, before its partitions were read.
        await bench.submit(with_epoch(80, older.broker_epoch))
        await another_leads_in_between(bench)
    await quiet(bench)
    await bench.done(beat(bench, 1))
    await quiet(bench)
    (partition,) = partitions(bench)
    assert (partition.leader, list(partition.isr), list(partition.last_known_elr)) == (-1, [], [])


async def test_ct31_a_controller_that_takes_over_finishes_an_arrival(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await with_topic(bench, {0: [1]})
    await bench.done(beat(bench, 1, fence=True))
    assert partitions(bench)[0].leader == -1
    with pages_held(monkeypatch):
        await bench.submit(beat(bench, 1))
        await another_leads_in_between(bench)
        assert not brokers(bench)[1].fenced
        assert partitions(bench)[0].leader == -1
    await quiet(bench)
    assert partitions(bench)[0].leader == 1


async def test_ct50_an_arrival_elects_nobody_who_is_gone_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    await with_topic(bench, {0: [1, 2]})
    await bench.done(alter(alteration("clicks", "min.insync.replicas", "2")))
    for broker_id in (2, 1):
        await bench.done(beat(bench, broker_id, fence=True))
    assert partitions(bench)[0].leader == -1
    before = bench.log.next_append_offset
    with pages_held(monkeypatch):
        await bench.submit(beat(bench, 1))
        await bench.submit(fence(1))
        await bench.submit(register(1, incarnation=77))
    await quiet(bench)
    changes = [record.partition_change for record in appended_records(bench, since=before)]
    elected = [change.leader for change in changes if change.HasField("leader")]
    assert 1 not in elected
    assert partitions(bench)[0].leader == -1


async def test_a_broker_that_has_registered_anew_meanwhile_is_not_unregistered(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await with_topic(bench, {0: [1, 2]})
    with pages_held(monkeypatch):
        results = await bench.submit(unregister(1))
        await bench.submit(register(1, incarnation=77))
    await bench.answered(results)
    assert results[0].error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert "broker 1 has registered again in the meantime" in results[0].error_message
    assert results[0].end_offset > 0  # it was fenced, and has left its partitions
    assert 1 in brokers(bench)
    # Nothing of it keeps the new incarnation from being unfenced.
    await quiet(bench)
    await bench.done(beat(bench, 1))
    assert not brokers(bench)[1].fenced


async def test_an_operation_that_fails_after_its_first_page_says_that_something_was_written(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await with_topic(bench, {0: [1, 2]}, min_isr=2)
    await bench.done(fence(1))  # so that unregistering it begins with no record
    with pages_held(monkeypatch):
        results = await bench.submit(unregister(1))
        first_page = bench.log.next_append_offset
        while bench.log.next_append_offset == first_page:
            bench.controller._paged_writes.next_page()
        await bench.submit(register(1, incarnation=77))
    await bench.answered(results)
    assert results[0].error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert results[0].end_offset == first_page + 1


async def test_ct31_a_shutdown_that_another_controller_began_ends_when_the_others_know_their_leaders(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await with_topic(bench, {0: [1, 2]})
    with pages_held(monkeypatch):
        await bench.submit(beat(bench, 1, shut_down=True))
        await another_leads_in_between(bench)
        begun = bench.log.next_append_offset
    await quiet(bench)
    assert partitions(bench)[0].leader == 2
    (end, epoch) = bench.log.next_append_offset, brokers(bench)[2].broker_epoch
    assert end > begun
    for metadata_offset, may_go in ((begun, False), (end, True)):
        await bench.done(admin_pb2.Operation(broker_heartbeat=heartbeat(2, epoch, metadata_offset)))
        answer = (await bench.done(beat(bench, 1, shut_down=True))).broker_heartbeat
        assert answer.should_shut_down is may_go
