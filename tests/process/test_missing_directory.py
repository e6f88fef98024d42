"""The broker that stopped last is started without its directory, as if a disk was not mounted, or was replaced."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kraftlog.local.cluster import LocalCluster
from tests.kraftlog.command_line import Run
from tests.process.broker_process import WAIT_SECONDS, BrokerProcess
from tests.process.test_older_disk import BEFORE, LAST, ask, brokers, leaders, produce_to_one, voter
from tests.process.test_replication import Acknowledgements, await_in_sync, produce, read_back

pytestmark = pytest.mark.process

__all__ = ("ask", "brokers", "voter")

IS_MISSING = "the broker was not started with their log directory"


class Acknowledged:
    """What clients know to be stored."""

    def __init__(self) -> None:
        self.on_all, self.on_the_last_one, self.on_one = Acknowledgements(), Acknowledgements(), Acknowledgements()


def without_directory(
    brokers: dict[int, BrokerProcess], ask: Callable[..., Any], voter: LocalCluster, run: Run, topic: str
) -> tuple[Acknowledged, Path]:
    """All brokers run, the last one to stop in an empty directory; what was acknowledged, and its right directory."""
    last, found = brokers[LAST], Acknowledged()
    ask("topics", "create", topic, "--replica-assignment", "71:72:73,71:73:72,71:72:73")
    ask("topics", "create", f"{topic}-single", "--replica-assignment", "71")
    produce(brokers, topic, BEFORE, found.on_all, "on all")
    produce_to_one(last, f"{topic}-single", BEFORE, found.on_one)
    await_in_sync(run, voter, topic)
    for number in (72, 73):
        brokers[number].kill()
    produce(brokers, topic, BEFORE, found.on_the_last_one, "on the last one")
    assert not found.on_all.errors and not found.on_the_last_one.errors and not found.on_one.errors
    assert last.stop() == 0
    away = last.directory.with_name("away")
    last.directory.rename(away)
    for broker in brokers.values():
        broker.start()
    ask("topics", "create", f"{topic}-probe", "--replica-assignment", "71:72:73")  # decided after the elections
    assert [*leaders(ask, topic), *leaders(ask, f"{topic}-single")] == [-1, -1, -1, -1]
    said = last.said.read_text().splitlines()  # the node may know a topic of another test, whose logs are missing too
    assert len([line for line in said if IS_MISSING in line and f"'{topic}-" in line]) == 1
    deadline = time.monotonic() + WAIT_SECONDS
    while any(
        row["Damaged"] != [LAST] for name in (topic, f"{topic}-single") for row in ask("partitions", "describe", name)
    ):
        assert time.monotonic() < deadline, last.said.read_text()
    return found, away


def test_db89_what_was_acknowledged_is_back_with_the_directory(
    brokers: dict[int, BrokerProcess], ask: Callable[..., Any], voter: LocalCluster, run: Run
) -> None:
    topic, last = "not-mounted", brokers[LAST]
    found, away = without_directory(brokers, ask, voter, run, topic)
    assert last.stop() == 0
    shutil.rmtree(last.directory)
    away.rename(last.directory)
    last.start()
    ask("topics", "create", f"{topic}-probe-2", "--replica-assignment", "71")
    assert [*leaders(ask, topic), *leaders(ask, f"{topic}-single")] == [LAST] * 4
    await_in_sync(run, voter, topic)
    assert read_back(brokers, topic, 2 * BEFORE) == found.on_all.values | found.on_the_last_one.values
    assert read_back(brokers, f"{topic}-single", BEFORE) == found.on_one.values


def test_db89_an_unclean_election_prefers_the_replicas_that_have_records(
    brokers: dict[int, BrokerProcess], ask: Callable[..., Any], voter: LocalCluster, run: Run
) -> None:
    topic = "replaced"
    found, _ = without_directory(brokers, ask, voter, run, topic)
    rows = [ask("elect", "--type", "unclean", "--topic", topic, "--partition", index)[0] for index in range(3)]
    assert [(row["Result"], row["Reason"]) for row in rows] == [("elected", None)] * 3
    assert leaders(ask, topic) == [72, 73, 72]
    await_in_sync(run, voter, topic)
    assert read_back(brokers, topic, BEFORE) == found.on_all.values
    (row,) = ask("elect", "--type", "unclean", "--topic", f"{topic}-single", "--partition", 0)
    assert row["Result"] == "elected"
    assert "its log is damaged" in row["Reason"]
    assert leaders(ask, f"{topic}-single") == [LAST]
