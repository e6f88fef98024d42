"""What the clients' commands do on every broker: times, limits and directories, and what the page for users shows."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from kraftbase.errors import ErrorCode
from tests.kraftlog.clients.brokers import KafkaBroker
from tests.kraftlog.clients.contract import JSON, Client, ClientsContract, check_done, numbered
from tests.paths import ROOT
from tests.shells import run_block

MINUTE_MS = 60_000
PAGE = (ROOT / "docs" / "operations" / "clients.md").read_text()
SH_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


def shown_at_work(block: str, broker: KafkaBroker, directory: Path) -> str:
    """Run a block of the page as a user does; what it printed."""
    finished = run_block(block, directory, KRAFTLOG_BROKERS=broker.address)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def json_lines(*timestamps_ms: int) -> str:
    """Records whose values are their timestamps."""
    return "".join(
        json.dumps({"value": str(timestamp_ms), "timestamp": timestamp_ms, "partition": 0}) + "\n"
        for timestamp_ms in timestamps_ms
    )


class BrokerContract(ClientsContract):
    """Every broker passes these tests, too."""

    def test_ranges_by_time(self, client: Client, broker: KafkaBroker) -> None:
        topic = broker.new_topic(2)
        check_done(client.produce(topic, json_lines(1_000, 2_000, 3_000), "--json"))
        assert client.consume(topic, "--from", "2000ms") == ["2000", "3000"]
        assert client.consume(topic, "--from", "1970-01-01T00:00:02.001Z") == ["3000"]
        assert client.consume(topic, "--from", "1970-01-01T01:00:03+01:00") == ["3000"]
        assert client.consume(topic, "--from", "3001ms") == []
        assert client.run("consume", topic, "--to", "3000ms").lines() == ["1000", "2000"]
        assert client.run("consume", topic, "--to", "4000ms").lines() == ["1000", "2000", "3000"]

    @pytest.mark.process
    def test_an_end_in_the_future_is_waited_for(self, client: Client, broker: KafkaBroker) -> None:
        topic = broker.new_topic()
        now_ms = int(time.time() * 1_000)
        early, late = now_ms, now_ms + 30 * MINUTE_MS
        with client.started("consume", topic, "--to", f"{now_ms + 10 * MINUTE_MS}ms") as process:
            assert process.stdout is not None
            check_done(client.produce(topic, json_lines(early), "--json"))
            assert process.stdout.readline() == f"{early}\n"
            check_done(client.produce(topic, json_lines(late), "--json"))
            assert (process.stdout.read(), process.wait()) == ("", 0)

    def test_a_record_that_is_too_large_is_named(self, client: Client, broker: KafkaBroker) -> None:
        topic = broker.new_topic(max_message_bytes=1_000)
        lines = f"a\n{'b' * 5_000}\nc\n"
        produced = client.produce(topic, lines, "--batch-bytes", 1, *JSON)
        assert produced.code == 1
        assert [json.loads(produced.output)[name] for name in ("Records", "Failed")] == [2, 1]
        (told,) = produced.errors.splitlines()
        assert told.startswith(f"error: MESSAGE_TOO_LARGE: line 2 was not written to {topic}, partition 0: ")
        assert client.consume(topic) == ["a", "c"]

    def test_a_large_record(self, client: Client, broker: KafkaBroker) -> None:
        topic = broker.new_topic(max_message_bytes=8 * 2**20, segment_bytes=16 * 2**20)
        check_done(client.produce(topic, "x" * (5 * 2**20)))
        assert client.consume(topic) == ["x" * (5 * 2**20)]

    def test_log_directories(self, client: Client, broker: KafkaBroker) -> None:
        topic, other = broker.new_topic(2), broker.new_topic()
        check_done(client.produce(topic, numbered(100), "--partition", 1))
        rows: list[dict[str, Any]] = client.run("log-dirs", "--topic", topic, *JSON).json()
        assert [(row["Topic"], row["Partition"]) for row in rows] == [(topic, 0), (topic, 1)]
        empty, filled = rows
        assert (empty["SizeBytes"], empty["OffsetLag"], empty["IsFuture"], empty["Error"]) == (0, 0, False, None)
        assert filled["SizeBytes"] > len(numbered(100))
        assert filled["TotalBytes"] >= filled["UsableBytes"] > 0
        assert filled["Directory"].startswith("/")
        of_all = client.run("log-dirs", "--broker", filled["Broker"], *JSON).json()
        assert {topic, other} <= {row["Topic"] for row in of_all}
        assert client.run("log-dirs", "--topic", other, "--topic", topic).output.count(f" {topic} ") == 2

    @pytest.mark.process
    def test_what_the_page_for_users_tells_to_do(self, broker: KafkaBroker, tmp_path: Path) -> None:
        for topic in ("clicks", "copy"):
            broker.create(topic, 2)
        blocks = [shown_at_work(block, broker, tmp_path) for block in re.findall(SH_BLOCK, PAGE)]
        written, read, copied, compared, directories = blocks
        assert re.findall(r"^Records: (\d+)$", written, re.MULTILINE) == ["1000", "2", "1", "1"]
        *_, last = read.splitlines()
        assert {"partition", "offset", "key"} <= json.loads(last).keys()
        of_user = [line.split("\t")[2:] for line in read.splitlines() if "\tuser-1\t" in line]
        assert of_user == [["", "user-1", "home"], ["trace:a1,from:web", "user-1", "paid"]]
        assert json.loads(copied)["Records"] == 1_004
        read_of, written_of = (set(re.findall(r"\b[0-9a-f]{32}\b", part)) for part in compared.split("{", 1))
        # Each partition's and the sum. Records without a key may all have gone where those with one go.
        assert 2 <= len(read_of) <= 3
        assert written_of == read_of
        assert len(re.findall(r'"Topic": "clicks"', directories)) == 2

    def test_log_directories_of_what_is_not_there(self, client: Client, broker: KafkaBroker) -> None:
        unknown = client.run("log-dirs", "--broker", 4711)
        assert unknown.is_error(ErrorCode.BROKER_ID_NOT_REGISTERED, "broker 4711 is not alive")
        assert client.run("log-dirs", "--topic", "nowhere").is_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "nowhere")
