"""The order in which a broker ends, and that it closes its logs whatever happens before."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kraftbase.errors import FlushFailed
from kraftbase.runtime import OnDone
from kraftlog.broker.shell.ending import Ending, EndingPorts
from kraftlog.telemetry.observer import LogsClosed
from tests.kraftlog.telemetry.recorder import Recorder
from tests.raft.by_hand import HandRuntime

ORDER = [
    "fetchers stop",
    "isr changes stop",
    "pending answered",
    "network closed",
    "assignments stop",
    "controller closed",
    "metadata left",
    "maintenance stops",
    "metadata stopped",
    "work on logs stops",
]


class Stage:
    """A broker that ends: what has been done, in order."""

    def __init__(self, clean_epoch: int | None = 7) -> None:
        self.done: list[str] = []
        self.failing: dict[str, BaseException] = {}
        self.runtime = HandRuntime()
        self.observer = Recorder()
        self.flush = SimpleNamespace(is_idle=True)
        self.are_clean = True
        self.closed_as: list[int] = []
        self.ended: list[bool] = []
        self.ports = EndingPorts(
            runtime=self.runtime,
            network=cast(
                Any,
                SimpleNamespace(
                    answer_pending=self._later("pending answered"),
                    close=self._later("network closed"),
                    close_controller=self._later("controller closed"),
                ),
            ),
            metadata=cast(Any, SimpleNamespace(stop=self._later("metadata stopped"))),
            leave_metadata=lambda: self.done.append("metadata left"),
            clean_epoch=lambda: clean_epoch,
            observer=self.observer,
            on_closed=self.ended.append,
        )
        self.logs = SimpleNamespace(
            online=[SimpleNamespace(commits=self.flush)],
            stop_work=lambda: self.done.append("work on logs stops"),
            close=self._close_logs,
        )
        self.parts = SimpleNamespace(
            fetchers=self._stopping("fetchers stop"),
            isr_changes=self._stopping("isr changes stop"),
            assignments=self._stopping("assignments stop"),
            maintenance=self._stopping("maintenance stops"),
        )

    def _stopping(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(stop=lambda: self.done.append(name))

    def _later(self, name: str) -> Callable[[OnDone], None]:
        def begin(on_done: OnDone) -> None:
            def end() -> None:
                self.done.append(name)
                on_done(self.failing.get(name))

            self.runtime.call_soon(end)

        return begin

    def _close_logs(self, broker_epoch: int) -> bool:
        if "logs closed" in self.failing:
            raise self.failing["logs closed"]
        self.closed_as.append(broker_epoch)
        return self.are_clean

    def start(self) -> None:
        Ending(cast(Any, self.logs), cast(Any, self.parts), self.ports).start()


def test_one_thing_follows_the_other_and_the_logs_come_last() -> None:
    stage = Stage()
    stage.start()
    stage.runtime.run()
    assert stage.done == ORDER
    assert (stage.closed_as, stage.ended) == ([7], [True])


@pytest.mark.parametrize("name", ["pending answered", "network closed", "controller closed", "metadata stopped"])
def test_each_is_waited_for(name: str) -> None:
    stage = Stage()
    stage.start()
    while name not in stage.done:
        assert ORDER[: len(stage.done)] == stage.done
        assert ORDER.index(name) >= len(stage.done) - 1
        stage.runtime.soon.popleft()()
    assert not stage.closed_as


def test_logs_are_not_closed_while_something_is_flushed_or_written_in_the_thread_of_the_disk() -> None:
    stage = Stage()
    stage.flush.is_idle = False
    stage.start()
    while stage.runtime.soon:
        stage.runtime.soon.popleft()()
    for _ in range(3):
        assert len(stage.runtime.on_disk) == 1, "it waits for the thread of the disk"
        assert not stage.runtime.aside
        stage.runtime.run_disk_work()
    stage.flush.is_idle = True
    stage.runtime.run()
    assert (stage.closed_as, stage.ended) == ([7], [True])


@pytest.mark.parametrize("name", ["pending answered", "network closed", "controller closed", "metadata stopped"])
def test_the_logs_are_closed_whatever_fails_before_and_the_next_start_is_one_after_a_crash(name: str) -> None:
    stage = Stage()
    stage.failing[name] = LookupError("a bug")
    stage.start()
    stage.runtime.run()
    assert stage.done == ORDER
    assert (stage.closed_as, stage.ended) == ([7], [False])


def test_logs_that_cannot_be_closed_are_no_clean_shutdown() -> None:
    stage = Stage()
    stage.failing["logs closed"] = FlushFailed("input/output error")
    stage.start()
    stage.runtime.run()
    assert (stage.closed_as, stage.ended) == ([], [False])
    assert stage.observer.decisions == [LogsClosed(is_clean=False)]


@pytest.mark.parametrize("are_clean", [True, False])
def test_an_observer_is_told_how_the_logs_were_closed_when_they_are(are_clean: bool) -> None:
    stage = Stage()
    stage.are_clean = are_clean
    stage.failing["network closed"] = LookupError("a bug")  # of that the logs know nothing
    stage.start()
    while stage.runtime.soon or stage.runtime.on_disk:
        stage.runtime.run_disk_work() if stage.runtime.on_disk else stage.runtime.soon.popleft()()
    assert stage.observer.decisions == []
    stage.runtime.run()
    assert stage.observer.decisions == [LogsClosed(are_clean)]


def test_a_broker_without_an_epoch_closes_its_logs_without_one() -> None:
    stage = Stage(clean_epoch=None)
    stage.start()
    stage.runtime.run()
    assert stage.closed_as == [-1]


def test_one_that_has_no_logs_has_nothing_to_wait_for() -> None:
    stage = Stage()
    Ending(None, None, stage.ports).start()
    assert (stage.done, stage.ended) == ([], [True])
