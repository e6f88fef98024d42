"""A small system in memory behind the same port: enough of brokers and topics for sessions to be tested."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from kraftlog.difftest import steps
from kraftlog.difftest.records import Record
from kraftlog.difftest.steps import Step
from kraftlog.difftest.system import SESSION_TIMEOUT_MS, Answer, System

Flaw = Callable[[Step, Answer, list[Record]], None]


class MemorySystem(System):
    """Answers at once. `flaw` may change what it answers and writes."""

    def __init__(self, name: str, flaw: Flaw | None = None) -> None:
        super().__init__()
        self._name = name
        self._flaw = flaw
        self._unread: list[Record] = []
        self._brokers: dict[int, bool] = {}
        self._heard: dict[int, float] = {}
        self._topics: set[str] = set()
        self.executed: list[Step] = []

    @property
    def name(self) -> str:
        return self._name

    async def execute(self, step: Step) -> Answer:
        self.executed.append(step)
        answer: Answer = {}
        records: list[Record] = []
        match step:
            case steps.RegisterBroker(broker_id=broker_id):
                self._brokers[broker_id] = True
                answer[""] = "NONE"
                records.append(Record("RegisterBroker", f"broker {broker_id}", self._registration(step)))
            case steps.Heartbeat(broker_id=broker_id):
                records += self._beat(step)
                answer[""] = f"NONE fenced={self._brokers[broker_id]} shut_down={step.want_shut_down}"
            case steps.UnregisterBroker(broker_id=broker_id):
                del self._brokers[broker_id]
                answer[""] = "NONE"
                records.append(Record("UnregisterBroker", f"broker {broker_id}", {}))
            case steps.CreateTopics(topics=topics):
                for topic in topics:
                    answer[topic.name] = "TOPIC_ALREADY_EXISTS" if topic.name in self._topics else "NONE"
                    if topic.name not in self._topics:
                        records.append(Record("Topic", f"topic {topic.name}", {"name": topic.name}))
                    self._topics.add(topic.name)
            case steps.DeleteTopics(names=names):
                for name in names:
                    answer[name] = "NONE"
                    self._topics.discard(name)
                    records.append(Record("RemoveTopic", f"topic {name}", {"name": name}))
            case _:
                answer[""] = "NONE"
        if self._flaw is not None:
            self._flaw(step, answer, records)
        self._unread += records
        return answer

    async def read_records(self) -> list[Record]:
        self._fence_the_silent()
        records: list[Record] = []
        for record in self._unread:
            self.take(record, records)
        self._unread = []
        return records

    def _beat(self, step: steps.Heartbeat) -> list[Record]:
        self._heard[step.broker_id] = time.monotonic()
        wanted = step.want_fence or step.want_shut_down
        if self._brokers[step.broker_id] == wanted:
            return []
        self._brokers[step.broker_id] = wanted
        return [Record("BrokerRegistrationChange", f"broker {step.broker_id}", {"fenced": wanted})]

    def _fence_the_silent(self) -> None:
        for broker_id, is_fenced in self._brokers.items():
            if not is_fenced and time.monotonic() - self._heard[broker_id] > SESSION_TIMEOUT_MS / 1000:
                self._brokers[broker_id] = True
                self._unread.append(Record("BrokerRegistrationChange", f"broker {broker_id}", {"fenced": True}))

    def _registration(self, step: steps.RegisterBroker) -> dict[str, Any]:
        return {
            "incarnation": str(step.incarnation), "epoch": "registration", "rack": step.rack, "fenced": True,
            "in_controlled_shutdown": False, "log_dirs": (), "end_points": (), "features": "",
        }  # fmt: skip
