"""A session finds what one system does otherwise, names the step, and goes back to nothing."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from kraftbase.errors import ErrorCode
from kraftlog.difftest import session as module
from kraftlog.difftest import steps
from kraftlog.difftest.known_divergences import is_executed
from kraftlog.difftest.records import Record
from kraftlog.difftest.session import Disturbed, Session, clearing
from kraftlog.difftest.shrink import shrink
from kraftlog.difftest.steps import Step
from kraftlog.difftest.system import SESSION_TIMEOUT_MS, Answer, Resigned
from tests.kraftlog.difftest.memory_system import Flaw, MemorySystem

START: list[Step] = [
    steps.RegisterBroker(1, 1), steps.Heartbeat(1), steps.RegisterBroker(2, 1), steps.Heartbeat(2),
]  # fmt: skip
TOPIC = steps.CreateTopics((steps.NewTopic("t", ((1,),)),))


async def prepared(flaw: Flaw | None = None) -> Session:
    session = Session(MemorySystem("Kafka"), MemorySystem("ours", flaw))
    await session.prepare()
    return session


async def test_two_systems_that_do_the_same_have_no_difference() -> None:
    session = await prepared()
    outcome = await session.run([*START, TOPIC, TOPIC])
    assert (outcome.differences, outcome.steps_done) == ([], 6)
    assert outcome.answers[-2:] == ["CreateTopics NONE", "CreateTopics TOPIC_ALREADY_EXISTS"]
    assert await session.clear()
    assert not session.kafka.image.topics and not session.own.image.brokers


async def test_another_error_is_a_finding_and_the_sequence_goes_on() -> None:
    def flaw(step: Step, answer: Answer, records: list[Record]) -> None:
        if answer.get("t") == "TOPIC_ALREADY_EXISTS":
            answer["t"] = "INVALID_REQUEST"

    outcome = await (await prepared(flaw)).run([*START, TOPIC, TOPIC, TOPIC])
    assert [(found.step, found.of, found.where, found.own) for found in outcome.findings] == [
        (number, "answer", "t", "INVALID_REQUEST") for number in (5, 6)
    ]
    assert outcome.steps_done == 7


async def test_other_metadata_ends_the_sequence() -> None:
    def flaw(step: Step, answer: Answer, records: list[Record]) -> None:
        if step == TOPIC:
            records.clear()

    session = await prepared(flaw)
    outcome = await session.run([*START, TOPIC, TOPIC])
    assert [(found.step, found.of, found.where) for found in outcome.findings] == [(4, "records", "topic t")]
    assert outcome.steps_done == 5
    assert await session.clear()


async def test_records_that_come_late_are_waited_for_and_do_not_count() -> None:
    late: list[Record] = []

    class LateSystem(MemorySystem):
        async def read_records(self) -> list[Record]:
            found = await super().read_records()
            held = [record for record in found if record.kind == "Topic"]
            released, late[:] = list(late), held
            return [record for record in found if record.kind != "Topic"] + released

    session = Session(MemorySystem("Kafka"), LateSystem("ours"))
    await session.prepare()
    assert (await session.run([*START, TOPIC])).differences == []


async def test_after_each_step_living_brokers_send_what_they_last_wanted() -> None:
    session = await prepared()
    own = session.own
    assert isinstance(own, MemorySystem)
    await session.run([*START, steps.Heartbeat(2, want_fence=True), TOPIC])
    assert own.executed[-3:] == [TOPIC, steps.Heartbeat(1), steps.Heartbeat(2, want_fence=True)]


async def test_a_broker_that_may_shut_down_is_not_heard_any_more() -> None:
    session = await prepared()
    own = session.own
    assert isinstance(own, MemorySystem)
    await session.run([*START, steps.Heartbeat(2, want_shut_down=True), TOPIC])
    assert own.executed[-2:] == [TOPIC, steps.Heartbeat(1)]


async def test_a_broker_that_only_one_lets_go_is_heard_once_more() -> None:
    """If the other one lets it go then, that is no difference."""

    def waiting(times: int) -> Flaw:
        left = [times]

        def flaw(step: Step, answer: Answer, records: list[Record]) -> None:
            if isinstance(step, steps.Heartbeat) and step.want_shut_down and left[0]:
                left[0] -= 1
                answer[""] = answer[""].replace("shut_down=True", "shut_down=False")

        return flaw

    for times, heartbeats in ((2, 3), (9, 4)):
        own = MemorySystem("ours", waiting(1))
        session = Session(MemorySystem("Kafka", waiting(times)), own)
        await session.prepare()
        leave = steps.Heartbeat(2, want_shut_down=True)
        outcome = await session.run([*START, leave])
        assert own.executed.count(leave) == heartbeats
        assert [found.where for found in outcome.findings] == ["heartbeat of broker 2 after the step"] * (times == 9)


async def with_levels(flaw: Flaw | None = None) -> Session:
    session = await prepared(flaw)
    for system in (session.kafka, session.own):
        system.image.features["metadata.version"] = 29
    return session


async def test_a_step_at_which_the_two_part_is_left_out_or_has_the_rule() -> None:
    session = await with_levels()
    own = session.own
    assert isinstance(own, MemorySystem)
    downgrades: list[Step] = [steps.UpdateFeature("metadata.version", level, 3) for level in range(7, 27)]
    executed = [step for step in downgrades if is_executed(step)]
    assert executed and len(executed) < len(downgrades)
    outcome = await session.run([*START, *downgrades])
    assert [step for step in own.executed if isinstance(step, steps.UpdateFeature)] == executed
    assert (outcome.differences, outcome.steps_done) == ([], len(START) + len(downgrades))


async def test_what_follows_from_a_step_at_which_the_two_part_has_its_rule() -> None:
    def flaw(step: Step, answer: Answer, records: list[Record]) -> None:
        if isinstance(step, steps.UpdateFeature):
            answer[""] = "INVALID_UPDATE_VERSION"

    session = await with_levels(flaw)
    downgrades: list[Step] = [steps.UpdateFeature("metadata.version", level, 3) for level in range(7, 27)]
    outcome = await session.run([*START, *downgrades])
    assert outcome.differences and {found.rule for found in outcome.differences} == {"CT-61"}
    assert outcome.findings == []


async def test_a_controller_that_resigns_is_a_finding_and_ends_the_sequence() -> None:
    class Resigning(MemorySystem):
        async def read_records(self) -> list[Record]:
            if TOPIC in self.executed:
                raise Resigned(ErrorCode.NOT_CONTROLLER, "Kafka's controller resigned: java.lang.RuntimeException: x")
            return await super().read_records()

    session = Session(Resigning("Kafka"), MemorySystem("ours"))
    await session.prepare()
    outcome = await session.run([*START, TOPIC, TOPIC])
    (found,) = outcome.findings
    assert (found.step, found.of, outcome.steps_done) == (4, "answer", 5)
    assert "java.lang.RuntimeException: x" in found.kafka


async def test_a_kafka_that_has_forgotten_eligible_replicas_is_not_as_new() -> None:
    session = await prepared()
    await session.run(START)
    session.kafka.image.has_forgotten_eligible = True
    assert not await session.clear()


async def test_a_broker_that_vanishes_is_fenced_by_both_and_the_others_are_not() -> None:
    session = await prepared()
    outcome = await session.run([*START, steps.VanishBroker(1)])
    assert outcome.differences == []
    for system in (session.kafka, session.own):
        assert (system.image.brokers[1].fenced, system.image.brokers[2].fenced) == (True, False)


async def test_that_one_system_fences_it_later_than_the_other_is_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found on a busy machine: for longer than records are waited for, only one of the two had written it."""
    monkeypatch.setattr(module, "SETTLE_SECONDS", 0.01)
    kafka = MemorySystem("Kafka")

    class FencingLater(MemorySystem):
        looks_left = 5

        def _fence_the_silent(self) -> None:
            broker = kafka.image.brokers.get(1)
            if broker is not None and broker.fenced and self.executed[-1] != START[1]:
                self.looks_left -= 1
            if self.looks_left < 0:
                super()._fence_the_silent()

    session = Session(kafka, FencingLater("ours"))
    await session.prepare()
    outcome = await session.run([*START, steps.VanishBroker(1)])
    assert outcome.differences == []
    assert session.own.image.brokers[1].fenced


async def test_a_broker_that_only_one_system_fences_is_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FENCED_TIMEOUT_SECONDS", SESSION_TIMEOUT_MS / 1000 + 1.0)

    class NeverFencing(MemorySystem):
        def _fence_the_silent(self) -> None:
            return None

    session = Session(MemorySystem("Kafka"), NeverFencing("ours"))
    await session.prepare()
    outcome = await session.run([*START, steps.VanishBroker(1), TOPIC])
    assert ("broker 1", "fenced=True", "fenced=False") in [
        (found.where, found.kafka, found.own) for found in outcome.findings
    ]
    assert outcome.steps_done == 5


async def test_a_machine_that_stops_for_a_session_disturbs_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    session = await prepared()
    await session.run(START)
    now = time.monotonic()
    monkeypatch.setattr(module.time, "monotonic", lambda: now + 60.0)
    with pytest.raises(Disturbed, match="heartbeat of broker 1 is late"):
        await session._round(0)


async def test_what_clears_a_system_deletes_all_that_there_is() -> None:
    session = await prepared()
    await session.run([*START, TOPIC])
    assert clearing(session.own, {}) == [
        steps.DeleteTopics(("t",)), steps.UnregisterBroker(1), steps.UnregisterBroker(2),
    ]  # fmt: skip


async def test_shrinking_leaves_only_the_steps_that_matter() -> None:
    sequence: list[Step] = [*START, TOPIC, *(steps.AllocateProducerIds(number) for number in range(20)), TOPIC]
    runs = 0

    async def shows(shorter: Sequence[Step]) -> bool:
        nonlocal runs
        runs += 1
        return shorter.count(TOPIC) == 2

    assert await shrink(sequence, shows) == [TOPIC, TOPIC]
    assert runs <= 60


async def test_shrinking_gives_up_after_so_many_runs() -> None:
    sequence: list[Step] = [steps.AllocateProducerIds(number) for number in range(100)]
    runs = 0

    async def shows(shorter: Sequence[Step]) -> bool:
        nonlocal runs
        runs += 1
        return False

    assert await shrink(sequence, shows, runs_max=5) == sequence
    assert runs == 5
