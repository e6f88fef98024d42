"""The commands in the pages for operators do what the page says, in its order, on a cluster of one voter."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import typer

from kraftbase.ids import id_to_bytes
from kraftlog.admin.client.client import AdminClient
from kraftlog.broker.clean_shutdown import FILE_NAME
from kraftlog.broker.settings import STATIC_CONFIGS
from kraftlog.broker.shell.membership import HEARTBEAT_INTERVAL_MS, RETRY_MS, SHUTDOWN_TIMEOUT_MS
from kraftlog.cli.main import app
from kraftlog.controller.rules.partition_change import METADATA_VERSION_SHRINK_KEEPS_EPOCH
from kraftlog.local.cluster_directory import open_or_create
from kraftpb.v1.admin_pb2 import Operation
from raft.observe import parse_endpoint
from statemachine.words.features import (
    CONTROLLER_REGISTRATION,
    FETCH_VERSION_18,
    METADATA_VERSION_MIN,
    METADATA_VERSION_NAMES,
    TRANSACTIONS,
)
from statemachine.words.record_versions import (
    METADATA_VERSION_CORDONED_DIRECTORIES,
    METADATA_VERSION_DIRECTORIES,
    METADATA_VERSION_ELR,
)
from tests.kraftlog.command_line import Run, environment
from tests.paths import ROOT
from tests.process.documented_settings import default_of
from tests.process.test_operations_pages import shell
from tests.process.test_up import up
from tests.statemachine.remote_logs import COPY_FINISHED, FINISHED, STARTED, partition_delete, segment, update

DIRECTORY = ROOT / "docs" / "operations"
NAMES = ("brokers", "replication", "partitions", "configs-and-features", "tiering", "asking-in-sql")
ADOPTION = (DIRECTORY / "all-voters-are-lost.md").read_text()
PAGES = {name: (DIRECTORY / f"{name}.md").read_text() for name in NAMES}

ASKED_EVERY_SECONDS: Final = 0.2


class Reader:
    """Follows a page: runs its `sh` blocks one after the other, in a directory of their own."""

    def __init__(self, page: str, directory: Path, addresses: str, cluster: Path, run: Run) -> None:
        self.addresses = addresses
        self._blocks = iter(blocks(page, "sh"))
        self._directory, self._cluster, self._run = directory, cluster, run
        directory.mkdir()

    def next(self) -> str:
        """Run the next block; what it printed."""
        return shell(next(self._blocks), self._directory, self.addresses, self._cluster)

    def write(self, name: str, content: str) -> None:
        """Write a file that the page shows."""
        (self._directory / name).write_text(content)

    def has(self, name: str) -> bool:
        """Whether there is a file of that name."""
        return (self._directory / name).exists()

    def json(self, *arguments: object) -> Any:
        """What a command of the test's own prints."""
        return self._run(*arguments, "--bootstrap-server", self.addresses, "--output", "json").json()

    def next_command(self) -> str:
        """The next block, which is one command that is not run yet."""
        return next(self._blocks)

    @contextmanager
    def broker(self, command: str) -> Iterator[subprocess.Popen[str]]:
        """`kraftlog brokers run` in a terminal of its own, unfenced."""
        program, *arguments = shlex.split(command)
        assert program == "kraftlog"
        line = [sys.executable, "-m", "kraftlog", *arguments]
        its_environment = environment(KRAFTLOG_BOOTSTRAP_SERVER=self.addresses, PYTHONUNBUFFERED="1")
        with subprocess.Popen(
            line, stdout=subprocess.PIPE, text=True, env=its_environment, cwd=self._directory
        ) as process:
            try:
                assert process.stdout is not None
                assert "is unfenced" in process.stdout.readline()
                yield process
            finally:
                process.kill()

    def wait_until(self, broker_id: int, *, fenced: bool) -> None:
        """Return when the broker is fenced, or is not; the test's time limit ends it."""
        self._wait_while(lambda: self.json("brokers", "list")[self._position(broker_id)]["Fenced"] is not fenced)

    def wait_until_in_sync(self) -> None:
        """Return when no replica is missing from an ISR."""
        self._wait_while(lambda: self.json("partitions", "describe", "--under-replicated"))

    def wait_until_moved(self) -> None:
        """Return when no reassignment is under way."""
        self._wait_while(lambda: self.json("reassign", "list"))

    def _wait_while(self, holds: Callable[[], object]) -> None:
        while holds():
            time.sleep(ASKED_EVERY_SECONDS)  # each question takes the nodes as much time as a command

    def _position(self, broker_id: int) -> int:
        return [int(broker["BrokerId"]) for broker in self.json("brokers", "list")].index(broker_id)


def blocks(page: str, language: str) -> list[str]:
    found: list[str] = re.findall(rf"^```{language}\n(.*?)^```", PAGES[page], re.MULTILINE | re.DOTALL)
    return found


def words(table: str) -> list[list[str]]:
    """What was printed, row by row and word by word; brokers in lists stay together."""
    return [line.replace(", ", ",").split() for line in table.splitlines()]


def stop(process: subprocess.Popen[str]) -> None:
    """As Ctrl-C does."""
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0


Reading = Callable[[str], AbstractContextManager[Reader]]


@pytest.fixture
def reading(tmp_path: Path, run: Run) -> Reading:
    """A reader of a page, with the cluster that the pages need, that reads it to its end."""

    @contextmanager
    def reading(page: str) -> Iterator[Reader]:
        cluster = tmp_path / "cluster"
        open_or_create(cluster, voters=1, observers=0, settings={"remote.log.storage.system.enable": True})
        with up(cluster, "--voters", 1, "--brokers", 3) as (_, addresses):
            reader = Reader(page, tmp_path / "elsewhere", addresses, cluster, run)
            yield reader
            with pytest.raises(StopIteration):
                reader.next_command()

    return reading


# --- the pages --------------------------------------------------------------------------------------------------------


@pytest.mark.process
@pytest.mark.timeout(400)
def test_brokers(reading: Reading) -> None:
    with reading("brokers") as page:
        written = page.next()
        assert re.search(r"^Records: 1000$", written, re.MULTILINE)
        assert sum(["clicks", str(number)] == row[4:6] for row in words(written) for number in range(3)) == 3
        directories = [row for row in words(page.next()) if row[0].isdigit()]
        assert [(row[0], *row[2:]) for row in directories] == [
            (str(broker_id), "1", "0", "0", "1", "1") for broker_id in (101, 102, 103)
        ]
        listed = words(page.next())
        assert [row[0] for row in listed[2:5]] == ["101", "102", "103"]
        assert ["BrokerId", "101"] in listed
        assert [row[0] for row in words(page.next()) if row[0].isdigit()] == ["101", "102", "103"]
        assert "Registered broker 1 " in page.next()
        command = page.next_command()
        with page.broker(command) as process:
            assert "Fenced broker 101." in page.next()
            page.wait_until(101, fenced=False)
            page.wait_until_in_sync()
            assert words(page.next())[-1][:3] == ["orders", "0", "101"]
            assert "Created topic moved" in page.next()
            stop(process)
        assert page.has(f"broker-2/{FILE_NAME}")
        shut_down = words(page.next())
        assert ["Fenced", "True"] in shut_down
        assert ["InControlledShutdown", "True"] in shut_down
        assert ["moved", "0", "101", "1", "2,101", "101"] in shut_down
        with page.broker(command) as process:
            assert not page.has(f"broker-2/{FILE_NAME}")
            process.kill()
        page.wait_until(2, fenced=True)
        assert ["2", "1", "0", "0"] in words(page.next())
        assert re.search(r"^moved +0 +not needed", page.next(), re.MULTILINE)
        assert "older_log_dirs" in page.next()
        assert ["moved", "0", "0"] in words(page.next())
        assert re.search(r"^moved +0 +accepted", page.next(), re.MULTILINE)
        page.wait_until_moved()
        left = words(page.next())
        assert ["moved", "0", "completed"] in [row[:3] for row in left]
        assert [row[0] for row in left[-3:]] == ["101", "102", "103"]
        assert ["Unregistered", "broker", "2."] in left


@pytest.mark.process
@pytest.mark.timeout(400)
def test_partitions(reading: Reading) -> None:
    with reading("partitions") as page:
        page.write("topics.yaml", blocks("partitions", "yaml")[0])
        page.write("clicks.json", blocks("partitions", "json")[0])
        applied = page.next()
        assert [line for line in applied.splitlines() if line.endswith(".")] == [
            "2 changes would be made.",
            "Made 2 changes.",
            "Nothing to do: all topics match the file.",
        ]
        changed = page.next()
        assert "PartitionCount: 4  ReplicationFactor: 2  Configs: min.insync.replicas=2\n" in changed
        assert "Topic orders could be created with 2 partitions, replication factor 2." in changed
        assert [row[0] for row in words(changed)[-3:]] == ["clicks", "orders", "views"]
        assert [row[1] for row in words(page.next())[2:]] == ["0", "1", "2", "3"]

        seven, eight = page.next_command(), page.next_command()
        with page.broker(eight) as second:
            with page.broker(seven) as first:
                assert "Created topic alone" in page.next()
                stop(first)
            assert words(page.next())[-1] == ["7", "1"]
            with page.broker(seven) as first:
                page.wait_until_in_sync()
                assert len(words(page.next())) == 2  # a table without rows
                assert any(row["led_by_others"] for row in page.json("sql", "SELECT * FROM leader_skew"))
                page.next()
                assert not any(row["led_by_others"] for row in page.json("sql", "SELECT * FROM leader_skew"))
                stop(second)
                stop(first)
        with page.broker(eight):
            offline = words(page.next())
            (no_leader,) = [row for row in offline if row[:3] == ["alone", "0", "-1"]]
            assert no_leader[4:] == ["7,8", "7", "7"]  # eligible, not in sync, and led last
            assert offline[-1][:4] == ["alone", "0", "failed", "PREFERRED_LEADER_NOT_AVAILABLE"]
            elected = words(page.next())
            assert ["alone", "0", "elected"] in elected
            assert ["No", "partition", "needs", "an", "election."] in elected
            assert elected[-1] == ["alone", "0", "8"]
            (alone,) = page.json("partitions", "describe", "alone")
            assert (alone["Leader"], alone["Isr"]) == (8, [8])

        proposals = [json.loads(line)["partitions"] for line in page.next().splitlines()]
        assert [{part["topic"] for part in proposal} for proposal in proposals] == [{"alone", "views"}, {"views"}]
        for proposal in proposals:
            assert {broker_id for part in proposal for broker_id in part["replicas"]} == {101, 103}
        begun = page.next()
        assert re.search(r"^clicks +0 +accepted", begun, re.MULTILINE)
        page.wait_until_moved()
        assert [row[2] for row in words(page.next())[-2:]] == ["completed", "completed"]
        (clicks, *_) = page.json("partitions", "describe", "clicks")
        assert clicks["Replicas"] == [103, 101]
        called_off = words(page.next())
        assert ["orders", "0", "cancelled"] in called_off
        assert called_off[-1] == ["clicks", "0", "accepted"]
        assert any(row[0] == "orders" for row in words(page.next()))  # all of these brokers are in one rack: none
        deleted = page.next().splitlines()
        assert deleted == ["Deleted topic views.", "Deleted topic alone.", "Topic views does not exist."]


@pytest.mark.process
@pytest.mark.timeout(400)
def test_configs_and_features(reading: Reading) -> None:
    with reading("configs-and-features") as page:
        assert ["cleanup.policy", "delete,compact"] in words(page.next())
        page.next()
        (policy, *_) = page.json("configs", "describe", "--entity-type", "topics", "--entity-name", "clicks")
        assert policy == {"Name": "cleanup.policy", "Value": "compact"}
        assert words(page.next())[-2:] == [["log.retention.ms", "172800000"], ["min.insync.replicas", "2"]]
        sources = words(page.next())
        for row in (
            ["cleanup.policy", "compact", "TOPIC"],
            ["retention.ms", "172800000", "CLUSTER_DEFAULT"],
            ["num.io.threads", "4", "BROKER"],
            ["log.retention.ms", "172800000", "CLUSTER_DEFAULT"],
            ["segment.ms", "604800000", "DEFAULT"],
        ):
            assert row in sources
        of_all = words(page.next())
        assert ["clicks", "cleanup.policy", "compact"] in of_all
        assert ["<default>", "min.insync.replicas", "2"] in of_all
        assert ["101", "num.io.threads", "4"] in of_all
        assert ["num.io.threads", '{"101":"4"}'] in words(page.next())

        assert page.next().count("Altered 1 quota of client-id ") == 2
        altered = page.next()
        assert "consumer_byte_rate of user 'alice' was not set; nothing was changed.\n" in altered
        quotas = words(altered)
        assert quotas[-2] == ["user", "'alice'", "producer_byte_rate", "1048576"]
        assert quotas[-1] == ["user", "<default>", "producer_byte_rate", "524288"]
        assert ["client-id", "'reports',user", "'alice'", "request_percentage", "20"] in quotas
        listed = words(page.next())
        assert ["TOPIC", "cli", "PREFIXED", "User:mallory", "*", "READ", "DENY"] in listed
        left = page.next()
        assert "User:mallory" in left
        assert left.endswith("Removed 3 entries.\n")

        assert ["metadata.version", "7", "30", "30", "4.3-IV0"] in words(page.next())
        assert [line.partition(" ")[2] for line in page.next().splitlines()] == [
            "can be downgraded to 26 (4.1-IV0).",
            "was downgraded to 26 (4.1-IV0).",
            "can be upgraded to 27 (4.1-IV1).",
            "was upgraded to 27 (4.1-IV1).",
            "was upgraded to 28 (4.2-IV0).",
            "was upgraded to 30 (4.3-IV0).",
            "is already at 1.",
        ]
        assert ["103", "metadata.version", "30"] in words(page.next())


@pytest.mark.process
@pytest.mark.timeout(400)
def test_tiering(reading: Reading) -> None:
    with reading("tiering") as page:
        page.next()
        assert page.next() == "Altered 2 configs of topic clicks.\n"
        (topic,) = page.json("topics", "describe", "clicks")
        topic_id = id_to_bytes(topic["TopicId"])
        records: list[Any] = [
            segment(1, 0, 9),
            update(1, COPY_FINISHED),
            segment(2, 10, 19, {0: 10, 2: 15}),
            update(2, COPY_FINISHED),
            segment(3, 20, 29, {2: 20}),
        ]
        write(page.addresses, topic_id, records)
        listed = page.next()
        assert len(re.findall("COPY_FINISHED", listed)) == 3  # both of all, and one of epoch 2
        assert listed.count("The finished copies have 200 bytes.") == 1
        found = words(page.next())
        assert [row[:5] for row in found[2:6]] == [
            ["0", "0", "0", "9", "1"],
            ["0", "0", "10", "14", "1"],
            ["0", "2", "15", "19", "1"],
            ["0", "2", "20", "29", "0"],
        ]
        assert found[-2:] == [["0", "0", "14"], ["0", "2", "19"]]
        assert words(page.next())[-1] == ["clicks", "0", "2", "200", "0", "19", "1", "0"]
        assert words(page.next())[-1][:2] == ["clicks", "0"]
        marked = words(page.next())
        assert marked[-2:] == [["0", "0", "-1"], ["1", "0", "-1"]]
        assert [topic["TopicId"], "0", "2", "200", "0"] in marked
        deletes = [partition_delete(state, partition_id=of) for of in (0, 1) for state in (STARTED, FINISHED)]
        write(page.addresses, topic_id, deletes)
        assert [row for row in words(page.next()) if row[0].isdigit()] == [["0"], ["0"]]


def write(addresses: str, topic_id: bytes, records: list[Any]) -> None:
    """Write what the broker would that copies the topic's segments, or deletes what it has in remote storage."""
    fields = {
        "RemoteLogSegmentMetadataRecord": "add_remote_log_segment",
        "RemoteLogSegmentMetadataUpdateRecord": "update_remote_log_segment",
        "RemotePartitionDeleteMetadataRecord": "put_remote_partition_delete",
    }

    async def write_all() -> None:
        async with AdminClient([parse_endpoint(addresses)]) as client:
            for record in records:
                record.topic_id = topic_id
                result = await client.execute(Operation(**{fields[type(record).__name__]: record}))
                assert result.error_code == 0, result.error_message

    asyncio.run(write_all())


@pytest.mark.process
@pytest.mark.timeout(400)
def test_asking_in_sql(reading: Reading) -> None:
    with reading("asking-in-sql") as page:
        assert [row for row in words(page.next()) if row[0].isdigit()] == [["3"], ["3"]]
        with page.broker(page.next_command()) as process:
            page.next()
            stop(process)
        assert [line.split("  ")[0].strip() for line in page.next().splitlines()[2:]] == [
            *("offline", "under min isr", "under replicated"),
            *("under min isr", "under replicated") * 2,
        ]
        no_leader = words(page.next())
        assert ["alone", "0", "[]", "[9]", "[9]"] in no_leader
        assert no_leader[-1] == ["9", "1"]
        refused = words(page.next())
        assert ["orders", "0", "[101,102]", "3"] in refused
        assert refused[-1] == ["orders", "3", "3"]
        page.next()
        assert not [
            row for row in page.json("sql", "SELECT * FROM under_min_isr_partitions") if row["topic"] == "orders"
        ]
        assert words(page.next())[-1] == ["9", "1", "1", "3"]
        assert words(page.next())[2:] == [
            *(["orders", str(partition), "2", "0"] for partition in (0, 1)),
            *(["views", str(partition), "2", "0"] for partition in (0, 1)),
        ]
        load = words(page.next())
        assert ["9", "1", "3", "0"] in load
        assert load[-1] == ["9", "1", "1.0"]
        assert len(words(page.next())) == 2  # none is under way
        assert words(page.next())[-1] == ["topic", "orders", "2"]
        applied = words(page.next())
        assert applied[-1] == applied[-4]  # the file, and the node that answers


# --- what they say ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_the_settings_on_the_pages_are_the_codes(name: str) -> None:
    documented = re.findall(r"^\| `([a-z.]+)` \| ([^ |]+) \|", PAGES[name], re.MULTILINE)
    assert len(documented) >= 2
    assert documented == [(key, default_of(key)) for key, _ in documented]


def test_the_page_has_every_config_of_a_brokers_start_and_every_option() -> None:
    page = PAGES["brokers"]
    assert {key for key in STATIC_CONFIGS if f"| `{key}` | " not in page} == set()
    command: Any = typer.main.get_command(app)
    options = {name for of in command.commands["brokers"].commands["run"].params for name in of.opts}
    said_elsewhere = {"--bootstrap-server", "--id", "--log-level", "--stop-at-eof"}
    assert {name for name in options - said_elsewhere if f"| `{name}" not in page} == set()


def test_the_times_of_a_broker_on_the_page_are_the_codes() -> None:
    page = " ".join(PAGES["brokers"].split())
    said = re.search(r"a heartbeat every (\d+) s, and every (\d+) ms while it waits", page)
    waits = re.search(r"It waits for (\d+) s, then it ends", page)
    assert said is not None
    assert waits is not None
    assert (int(said[1]) * 1_000, int(said[2])) == (HEARTBEAT_INTERVAL_MS, RETRY_MS)
    assert int(waits[1]) * 1_000 == SHUTDOWN_TIMEOUT_MS


def test_the_levels_on_the_page_are_those_that_the_code_asks_for() -> None:
    levels = re.findall(r"^\| (\d+) \| (\S+) \|", PAGES["configs-and-features"], re.MULTILINE)
    assert [int(level) for level, _ in levels] == [
        METADATA_VERSION_MIN,
        METADATA_VERSION_SHRINK_KEEPS_EPOCH,
        TRANSACTIONS,
        CONTROLLER_REGISTRATION,
        METADATA_VERSION_DIRECTORIES,
        METADATA_VERSION_ELR,
        FETCH_VERSION_18,
        METADATA_VERSION_CORDONED_DIRECTORIES,
    ]
    assert [release for _, release in levels] == [METADATA_VERSION_NAMES[int(level)] for level, _ in levels]


GROUPS = ("topics", "partitions", "brokers", "configs", "features", "quotas", "acls", "reassign", "tier")


def test_every_command_about_the_metadata_is_shown_at_work() -> None:
    shown = ADOPTION + "".join(block for name in NAMES for block in blocks(name, "sh"))
    command: Any = typer.main.get_command(app)
    wanted = ["elect", "sql"]
    for name in GROUPS:
        group = command.commands[name]
        assert isinstance(group, typer.core.TyperGroup)
        wanted += [f"{name} {of_group}" for of_group in group.commands]
    assert len(wanted) >= 30
    assert [name for name in wanted if f"kraftlog {name} " not in shown and f"kraftlog {name}\n" not in shown] == []


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name: str) -> None:
    links = re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", PAGES[name])
    assert links
    for path, anchor in links:
        target = (DIRECTORY / path) if path else DIRECTORY / f"{name}.md"
        headings = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
        anchors = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
        assert not anchor or anchor in anchors, (path, anchor)
