"""What counts as committed on a leader, is shown to readers and acknowledged with acks=all (DB-21, DB-22, DB-23)."""

from __future__ import annotations

from pathlib import Path

from kraftbase.errors import ErrorCode
from tests.kraftlog.broker.broker_world import BrokerWorld, replicas, topic
from tests.kraftlog.storage.builders import batch
from tests.statemachine.builders import config

TWO_IN_SYNC = config("clicks", "min.insync.replicas", "2")


def test_db22_with_too_few_replicas_in_sync_nothing_is_committed(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path, [topic("clicks"), replicas(on=[1, 2], isr=[1]), TWO_IN_SYNC])
    world.send((0, batch(1)))
    assert world.produced_codes() == [ErrorCode.NOT_ENOUGH_REPLICAS]
    world.send((0, batch(1)), acks=1)
    world.runtime.run()
    assert world.produced_codes() == [ErrorCode.NONE]
    assert world.high_watermark() == 0
    world.commit(config("clicks", "min.insync.replicas", "1"))
    assert world.high_watermark() == 1


def test_db22_more_than_there_are_need_not_be_in_sync(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path, [topic("clicks"), replicas(), TWO_IN_SYNC])
    world.send((0, batch(1)))
    world.runtime.run()
    assert world.produced_codes() == [ErrorCode.NONE]
    assert world.high_watermark() == 1


def test_db23_acks_all_that_waits_while_others_leave_is_told_so_when_it_is_committed_after_all(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path, [topic("clicks"), replicas(on=[1, 2]), TWO_IN_SYNC])
    world.send((0, batch(1)))
    world.runtime.run()
    world.commit(replicas(on=[1, 2], isr=[1], epoch=1))
    assert world.answers == []
    assert world.high_watermark() == 0
    world.commit(config("clicks", "min.insync.replicas", "1"))
    assert world.produced_codes() == [ErrorCode.NONE]


def test_db21_a_broker_that_begins_to_lead_alone_shows_what_it_has(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path, [topic("clicks"), replicas(on=[1, 2])])
    world.send((0, batch(3)), acks=1)
    world.runtime.run()
    world.answers.clear()
    world.read((0, 0))
    world.commit(replicas(on=[1, 2], isr=[1], epoch=1))
    world.runtime.run()
    assert [part.high_watermark for part in world.fetched()] == [3]


def test_db22_an_isr_that_shrinks_counts_with_the_setting_that_changes_with_it(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path, [topic("clicks"), replicas(on=[1, 2])])
    world.send((0, batch(1)))
    world.runtime.run()
    world.commit(TWO_IN_SYNC, replicas(on=[1, 2], isr=[1], epoch=1))
    assert world.high_watermark() == 0
