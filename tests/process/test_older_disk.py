"""An older copy of a broker's directory is put back on the broker that stopped last: nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import confluent_kafka
import pytest

from kraftlog.local.cluster import LocalCluster
from kraftlog.local.cluster_directory import open_or_create
from tests.effort import all_cases
from tests.kraftlog.command_line import Run
from tests.process.broker_process import WAIT_SECONDS, BrokerProcess
from tests.process.conftest import SESSION_TIMEOUT_MS, addresses
from tests.process.test_replication import Acknowledgements, await_in_sync, produce, read_back

pytestmark = pytest.mark.process

BROKERS: Final = (71, 72, 73)
LAST: Final = 71
BEFORE: Final = 600
RECORDS: Final = 5_000 if all_cases() else 900
IS_OLDER: Final = "a log directory is an older copy"


@pytest.fixture(scope="module")
def voter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A node of this module's own."""
    settings = {"broker.session.timeout.ms": SESSION_TIMEOUT_MS}
    cluster = LocalCluster(open_or_create(tmp_path_factory.mktemp("voter"), voters=1, observers=0, settings=settings))
    try:
        asyncio.run(cluster.start())
        asyncio.run(cluster.wait_for_leader())
        yield cluster
    finally:
        asyncio.run(cluster.stop())


@pytest.fixture
def brokers(voter: LocalCluster, tmp_path: Path) -> Iterator[dict[int, BrokerProcess]]:
    """Three brokers that run, by id, with directories of this test's own."""
    found = {number: BrokerProcess(addresses(voter), number, tmp_path / str(number)) for number in BROKERS}
    with found[71].running(), found[72].running(), found[73].running():
        yield found
    for broker in found.values():
        assert "Traceback" not in broker.said.read_text()


@pytest.fixture
def ask(voter: LocalCluster, run: Run) -> Callable[..., Any]:
    """Runs a command; what it prints."""

    def ask(*words: object) -> Any:
        return run(*words, "--bootstrap-server", addresses(voter), "--output", "json").json()

    return ask


def restarted_and_copied(broker: BrokerProcess) -> Path:
    """A copy of the broker's directory; the broker runs again, with another registration."""
    assert broker.stop() == 0
    copy = broker.directory.with_name("copy")
    shutil.copytree(broker.directory, copy)
    broker.start()
    return copy


def put_back(broker: BrokerProcess, copy: Path) -> None:
    shutil.rmtree(broker.directory)
    copy.rename(broker.directory)


def leaders(ask: Callable[..., Any], topic: str) -> list[int]:
    (shown,) = ask("topics", "describe", topic)
    return [partition["Leader"] for partition in shown["Partitions"]]


@pytest.mark.parametrize("min_isr", [pytest.param(2, marks=pytest.mark.slow), 1])
@pytest.mark.parametrize("is_clean", [True, False], ids=["shut down", "killed"])
def test_ct38_an_older_copy_on_the_last_one_to_stop_does_not_lead(
    brokers: dict[int, BrokerProcess], ask: Callable[..., Any], voter: LocalCluster, run: Run, is_clean: bool,
    min_isr: int,
) -> None:  # fmt: skip
    """With min.insync.replicas=2 another one is eligible. With 1 the last one may have acknowledged something alone, as
    far as the controller knows: the operator decides, and the election prefers the others."""
    topic = f"replicated-{is_clean}-{min_isr}"
    ask(
        "topics", "create", topic, "--replica-assignment", "71:72:73,72:73:71,73:71:72",
        "--config", f"min.insync.replicas={min_isr}",
    )  # fmt: skip
    acknowledged = Acknowledgements()
    produce(brokers, topic, BEFORE, acknowledged, "before the copy")
    copy = restarted_and_copied(brokers[LAST])
    await_in_sync(run, voter, topic)
    produce(brokers, topic, RECORDS, acknowledged, "after the copy")
    assert not acknowledged.errors
    for number in (72, 73):
        assert brokers[number].stop() == 0
    if is_clean:
        assert brokers[LAST].stop() == 0
    else:
        brokers[LAST].kill()
    put_back(brokers[LAST], copy)
    brokers[LAST].start()
    ask("topics", "create", f"{topic}-probe", "--replica-assignment", "71")  # decided after the elections
    assert leaders(ask, topic) == [-1, -1, -1]
    assert brokers[LAST].said.read_text().count(IS_OLDER) == 1
    (listed,) = [one for one in ask("brokers", "list") if one["BrokerId"] == LAST]
    assert len(listed["OlderLogDirs"]) == 1
    for number in (72, 73):
        brokers[number].start()
    if min_isr == 1:
        ask("topics", "create", f"{topic}-probe-2", "--replica-assignment", "72")
        assert leaders(ask, topic) == [-1, -1, -1]
        rows = [ask("elect", "--type", "unclean", "--topic", topic, "--partition", index)[0] for index in range(3)]
        assert [(row["Result"], row["Reason"]) for row in rows] == [("elected", None)] * 3
        assert LAST not in leaders(ask, topic)
    await_in_sync(run, voter, topic)
    assert read_back(brokers, topic, BEFORE + RECORDS) == acknowledged.values
    # The next registration finds what this one has left.
    assert brokers[LAST].stop() == 0
    brokers[LAST].start()
    await_in_sync(run, voter, topic)
    assert brokers[LAST].said.read_text().count(IS_OLDER) == 1


def test_ct38_an_older_copy_leads_by_an_unclean_election_only_and_so_does_the_right_directory_after_it(
    brokers: dict[int, BrokerProcess], ask: Callable[..., Any], voter: LocalCluster, run: Run
) -> None:
    """One topic has a replica that stays behind, and follows what brokers.md says: nothing of it is lost."""
    last, other = brokers[LAST], brokers[72]
    ask("topics", "create", "single", "--replica-assignment", "71")
    ask("topics", "create", "pair", "--replica-assignment", "72:71")
    single, pair = Acknowledgements(), Acknowledgements()
    produce_to_one(last, "single", BEFORE, single)
    produce_to_one(last, "pair", BEFORE, pair)
    copy = restarted_and_copied(last)
    await_in_sync(run, voter, "pair", 2)
    assert other.stop() == 0
    produce_to_one(last, "single", BEFORE, single)
    produce_to_one(last, "pair", BEFORE, pair)
    assert not single.errors and not pair.errors and len(single.values) == len(pair.values) == 2 * BEFORE
    assert last.stop() == 0
    right = last.directory.with_name("right")
    shutil.copytree(last.directory, right)
    put_back(last, copy)
    last.start()
    other.start()
    ask("topics", "create", "probe", "--replica-assignment", "71")
    assert [*leaders(ask, "single"), *leaders(ask, "pair")] == [-1, -1]
    (row,) = ask("elect", "--type", "unclean", "--topic", "single", "--partition", 0)
    assert row["Result"] == "elected"
    assert "an older copy" in row["Reason"]
    assert leaders(ask, "single") == [LAST]
    assert other.stop() == last.stop() == 0
    put_back(last, right)
    last.start()
    ask("topics", "create", "probe-2", "--replica-assignment", "71")
    assert leaders(ask, "pair") == [-1]
    assert ask("elect", "--type", "unclean", "--topic", "pair", "--partition", 0)[0]["Result"] == "elected"
    other.start()
    await_in_sync(run, voter, "pair", 2)
    assert read_back(brokers, "pair", 2 * BEFORE) == pair.values


def produce_to_one(broker: BrokerProcess, topic: str, count: int, acknowledged: Acknowledgements) -> None:
    """Records for partition 0."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.servers, "message.timeout.ms": 60_000, "enable.idempotence": True}
    )
    for index in range(count):
        producer.produce(topic, str(index).encode(), partition=0, on_delivery=acknowledged.delivered)
    assert producer.flush(WAIT_SECONDS) == 0
