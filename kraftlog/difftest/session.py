"""Runs sequences of steps, one after the other, on both systems.

A run is deterministic: after each step every living broker sends one heartbeat, in the order of ids, and the answers
are compared, too. The run waits only for a silent broker: until it is fenced, or until its session has ended so that it
can start again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.difftest import steps
from kraftlog.difftest.comparison import Difference, compare_answers, compare_images, compare_records
from kraftlog.difftest.deviations import explained
from kraftlog.difftest.known_divergences import divergence_rule, is_executed
from kraftlog.difftest.placement import compare_placed
from kraftlog.difftest.records import Record
from kraftlog.difftest.steps import Heartbeat, Step
from kraftlog.difftest.system import SESSION_TIMEOUT_MS, Answer, Resigned, System

SETTLE_SECONDS: Final = 0.4
"""Records that differ count as a difference once neither system has written anything for this long."""
POLL_SECONDS: Final = 0.02
ROUND_SECONDS: Final = 0.4
"""How often the other brokers send heartbeats while the run waits for a silent one."""
SESSION_SECONDS: Final = SESSION_TIMEOUT_MS / 1000
FENCED_TIMEOUT_SECONDS: Final = 4 * SESSION_SECONDS
MARGIN_SECONDS: Final = 0.25
ROUNDS_MAX: Final = 3


class Disturbed(ApiError):
    """The machine was too slow to send a broker's heartbeat in time. The sequence shows nothing."""


@dataclass(slots=True)
class Outcome:
    """The outcome of a sequence."""

    differences: list[Difference] = field(default_factory=list)
    steps_done: int = 0
    answers: list[str] = field(default_factory=list)
    """Kafka's errors for each step, to measure which errors are covered."""

    @property
    def findings(self) -> list[Difference]:
        """The differences that no rule explains."""
        return [difference for difference in self.differences if not difference.rule]


class Session:
    """Two running systems, whose metadata is empty between sequences."""

    def __init__(self, kafka: System, own: System) -> None:
        self.kafka = kafka
        self.own = own
        self._before: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
        self._alive: dict[int, Heartbeat] = {}
        """The heartbeat that each living broker sends."""
        self._contact: dict[int, float] = {}
        """When each broker sent its last heartbeat, in seconds of time.monotonic."""

    async def prepare(self) -> None:
        """Record the metadata of a new cluster, once. Both get the default that Kafka writes by itself (KIP-966)."""
        default = steps.AlterConfigs(steps.BROKER, "", (("min.insync.replicas", steps.SET, "1"),))
        await self._both(default)
        await self._settled(lambda kafka, own: [])
        self._before = (self.kafka.image.resources(), self.own.image.resources())

    # --- a sequence -----------------------------------------------------------------------------------------------

    async def run(self, sequence: list[Step]) -> Outcome:
        """Carry out a sequence until its end, or until the metadata differ. Raises Disturbed and ApiError."""
        outcome = Outcome()
        for system in (self.kafka, self.own):
            system.names.begin()
        for number, step in enumerate(sequence):
            outcome.steps_done = number + 1
            rule = divergence_rule(step, self.kafka.image)
            if rule and not is_executed(step):
                continue
            before = dict(self.kafka.image.partitions)
            with_former = [key for key, gone in self.kafka.image.former_eligible.items() if gone]
            try:
                found = await self._step(number, step, outcome)
            except Resigned as resigned:
                fault = Difference(number, "answer", "", str(resigned), "an answer")
                outcome.differences += explained([fault], step, before)
                break
            images = compare_images(number, self.kafka.image, self.own.image, *self._before)
            named = {difference.where for difference in found}
            found += [difference for difference in images if difference.where not in named]
            if rule:
                outcome.differences += [replace(difference, rule=rule) for difference in found]
            else:
                outcome.differences += explained(found, step, before, with_former)
            if images:
                break
        return outcome

    async def _step(self, number: int, step: Step, outcome: Outcome) -> list[Difference]:
        if isinstance(step, steps.VanishBroker):
            return await self._vanish(number, step.broker_id)
        found: list[Difference] = []
        if isinstance(step, steps.RegisterBroker) and (step.is_late or self._is_silent(step.broker_id)):
            found += await self._vanish(number, step.broker_id)
        kafka, own = await self._both(step)
        errors = sorted({value.split()[0] for value in kafka.values()})
        outcome.answers.append(" ".join([type(step).__name__, *errors]))
        found += compare_answers(number, kafka, own)
        if isinstance(step, steps.PlaceTopic):
            found += await compare_placed(number, step, self.kafka, self.own)
        else:
            found += await self._settled(lambda kafka, own: compare_records(number, kafka, own))
        self._note(step, kafka, own)
        return found + await self._round(number)

    def _note(self, step: Step, kafka: Answer, own: Answer) -> None:
        """Note which brokers are alive after a step, and the heartbeat that each of them sends."""
        both = (kafka.get("", ""), own.get("", ""))
        if not all(answer.startswith("NONE") for answer in both):
            return
        match step:
            case steps.RegisterBroker(broker_id=broker_id):
                if broker_id in self._alive and self.kafka.image.brokers[broker_id].fenced:
                    del self._alive[broker_id]
                self._contact[broker_id] = time.monotonic()
            case Heartbeat(broker_id=broker_id, is_caught_up=True):
                self._alive[broker_id] = replace(step, epoch_change=0)
                self._contact[broker_id] = time.monotonic()
                self._let_go(broker_id, both)
            case steps.UnregisterBroker(broker_id=broker_id):
                self._alive.pop(broker_id, None)

    def _let_go(self, broker_id: int, answers: tuple[str, str]) -> None:
        if all("shut_down=True" in answer for answer in answers):
            self._alive.pop(broker_id, None)

    async def _round(self, number: int) -> list[Difference]:
        """Send a heartbeat of every living broker, and repeat the round if the answers differ.

        One round may not suffice: Kafka forgets a broker's state when it unfences it, until the next heartbeat, so that
        another broker may have to wait for its permission to shut down; and kraftlog does not unfence a broker before
        its departure is complete (CT-35).
        """
        found: list[Difference] = []
        for _ in range(ROUNDS_MAX):
            found = await self._heartbeats(number)
            if not found:
                break
        return found + await self._settled(lambda kafka, own: compare_records(number, kafka, own))

    async def _heartbeats(self, number: int) -> list[Difference]:
        found: list[Difference] = []
        for broker_id, heartbeat in sorted(self._alive.items()):
            if time.monotonic() - self._contact[broker_id] > SESSION_SECONDS - MARGIN_SECONDS:
                raise Disturbed(ErrorCode.REQUEST_TIMED_OUT, f"the heartbeat of broker {broker_id} is late")
            kafka, own = await self._both(heartbeat)
            self._contact[broker_id] = time.monotonic()
            found += [
                replace(difference, where=f"heartbeat of broker {broker_id} after the step")
                for difference in compare_answers(number, kafka, own)
            ]
            self._let_go(broker_id, (kafka.get("", ""), own.get("", "")))
        return found

    async def _vanish(self, number: int, broker_id: int) -> list[Difference]:
        """Keep a broker silent until its session has ended and both systems have fenced it; the others continue.

        Until then records are read but not compared, since the two systems fence it at different moments.
        """
        self._alive.pop(broker_id, None)
        found: list[Difference] = []
        kafka: list[Record] = []
        own: list[Record] = []
        until = self._contact.get(broker_id, 0.0) + SESSION_SECONDS + MARGIN_SECONDS
        deadline = time.monotonic() + FENCED_TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            kafka += await self.kafka.read_records()
            own += await self.own.read_records()
            if time.monotonic() >= until and self._is_fenced(broker_id):
                comparison = partial(compare_records, number)
                return found + await self._settled(comparison, kafka, own)
            await asyncio.sleep(ROUND_SECONDS)
            found += await self._heartbeats(number)
        return [*found, Difference(number, "image", f"broker {broker_id}", *self._fenced(broker_id))]

    def _is_silent(self, broker_id: int) -> bool:
        """Whether a registered broker sends no heartbeats: the time would decide whether its session has ended."""
        return broker_id not in self._alive and broker_id in self.kafka.image.brokers

    def _is_fenced(self, broker_id: int) -> bool:
        images = (self.kafka.image, self.own.image)
        return all(broker_id not in image.brokers or image.brokers[broker_id].fenced for image in images)

    def _fenced(self, broker_id: int) -> tuple[str, str]:
        found = [system.image.brokers.get(broker_id) for system in (self.kafka, self.own)]
        kafka, own = ("not registered" if one is None else f"fenced={one.fenced}" for one in found)
        return kafka, own

    async def _both(self, step: Step) -> tuple[Answer, Answer]:
        kafka, own = await asyncio.gather(self.kafka.execute(step), self.own.execute(step))
        return kafka, own

    async def _settled(
        self, compare: Any, read_of_kafka: Sequence[Record] = (), read_of_own: Sequence[Record] = ()
    ) -> list[Difference]:
        """Read the new records of both, and add them to those read already, until they agree or no more are written.

        Return the differences.
        """
        kafka, own = list(read_of_kafka), list(read_of_own)
        quiet_since = time.monotonic()
        while True:
            more_of_kafka, more_of_own = await asyncio.gather(self.kafka.read_records(), self.own.read_records())
            kafka += more_of_kafka
            own += more_of_own
            if more_of_kafka or more_of_own:
                quiet_since = time.monotonic()
            differences: list[Difference] = compare(kafka, own)
            if not differences or time.monotonic() - quiet_since > SETTLE_SECONDS:
                return differences
            await asyncio.sleep(POLL_SECONDS)

    # --- between sequences ----------------------------------------------------------------------------------------

    async def clear(self) -> bool:
        """Delete everything; return whether both systems are as they were before the first sequence.

        A Kafka that has cleared eligible replicas is not: they stay in an index (BrokersToIsrs), and its controller
        resigns when it finds a deleted topic there.
        """
        if self.kafka.image.has_forgotten_eligible:
            return False
        self._alive.clear()
        self._contact.clear()
        for system, before in ((self.kafka, self._before[0]), (self.own, self._before[1])):
            for step in clearing(system, before):
                await system.execute(step)
                await system.read_records()
        await self._settled(lambda kafka, own: [])
        return not compare_images(0, self.kafka.image, self.own.image, *self._before) and all(
            not system.image.topics and not system.image.brokers for system in (self.kafka, self.own)
        )


def clearing(system: System, before: dict[str, Any]) -> list[Step]:
    """Return the steps that restore a system's earlier state."""
    image = system.image
    found: list[Step] = []
    if image.topics:
        found.append(steps.DeleteTopics(tuple(sorted(image.topics))))
    found += [steps.UnregisterBroker(broker_id) for broker_id in sorted(image.brokers)]
    for resource, configs in image.configs.items():
        kind, _, name = resource.removeprefix("configs ").partition(" ")
        old = before.get(resource, {})
        changes = [(key, steps.DELETE, "") for key in configs if key not in old]
        changes += [(key, steps.SET, value) for key, value in old.items() if configs.get(key) != value]
        if changes and kind == "broker":
            found.append(steps.AlterConfigs(steps.BROKER, name.strip("'"), tuple(changes)))
    if any(image.entries.values()):
        found.append(steps.DeleteAcls((steps.AclFilter(1, None, 1, None, None, 1, 1),)))
    found += [_quotas_cleared(entity, quotas) for entity, quotas in image.quota_entities() if quotas]
    for name, level in image.features.items():
        old_level = before.get(f"feature {name}", level)
        if old_level != level:
            upgrade_type = 1 if old_level > level else 2
            found.append(steps.UpdateFeature(name, old_level, upgrade_type))
    return found


def _quotas_cleared(entity: tuple[tuple[str, str | None], ...], quotas: dict[str, float]) -> Step:
    return steps.AlterQuotas(entity, tuple((key, None) for key in quotas))
