"""What the clients' commands do on every broker: a module for each kind of broker has a class that inherits this."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kraftbase.errors import ErrorCode
from kraftlog.clients import producing
from kraftlog.clients.producing import ProduceOptions, RecordProducer
from kraftlog.clients.records import Record
from kraftlog.config.endpoints import parse_endpoints
from tests.kraftlog.clients.brokers import KafkaBroker
from tests.kraftlog.command_line import Finished, Run, command, environment, kraftlog

EXIT_INTERRUPTED = 130
EXIT_READER_GONE = 141
BUFFERED = environment(PYTHONUNBUFFERED="")
JSON = ("--output", "json")
BYTES = {"base64": "AP8="}
LINES = [
    {"partition": 0, "timestamp": 1_700_000_000_000, "key": None, "value": "a", "headers": []},
    {"partition": 1, "timestamp": 1_700_000_000_001, "key": "k", "value": None, "headers": [["n", "1"], ["n", "2"]]},
    {"partition": 0, "timestamp": 1_700_000_000_002, "key": "", "value": "li\nne\t\u00fc", "headers": [["n", None]]},
    {"partition": 1, "timestamp": 1_700_000_000_003, "key": BYTES, "value": BYTES, "headers": [["n", BYTES]]},
]


class Client:
    """Runs the commands on one broker."""

    def __init__(self, run: Run, broker: KafkaBroker, directory: Path) -> None:
        self._run = run
        self._file = directory / "lines"
        self.at = ("--bootstrap-server", broker.address)

    def produce(self, topic: str, lines: str | bytes, *options: object) -> Finished:
        """Without what is said of a broker that is slow."""
        self._file.write_bytes(lines.encode() if isinstance(lines, str) else lines)
        finished = self._run("produce", topic, *self.at, "--file", self._file, *options)
        told = [line for line in finished.errors.splitlines(keepends=True) if not line.startswith("waiting for ")]
        return finished._replace(errors="".join(told))

    def consume(self, topic: str, *options: object) -> list[str]:
        """The lines of what is there."""
        return self._run("consume", topic, *self.at, "--until-end", *options).lines()

    def records(self, topic: str, *options: object) -> list[Any]:
        return [json.loads(line) for line in self.consume(topic, *JSON, *options)]

    def run(self, *arguments: object) -> Finished:
        return self._run(*arguments, *self.at)

    @contextmanager
    def started(self, *arguments: object) -> Iterator[subprocess.Popen[str]]:
        """A command in a process of its own."""
        with subprocess.Popen(
            command(*arguments, *self.at),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=BUFFERED,
        ) as process:  # fmt: skip
            try:
                yield process
            finally:
                process.kill()


@pytest.fixture
def client(run: Run, broker: KafkaBroker, tmp_path: Path) -> Client:
    return Client(run, broker, tmp_path)


def check_done(finished: Finished) -> None:
    assert (finished.code, finished.errors) == (0, "")


def numbered(count: int) -> str:
    return "".join(f"line {number}\n" for number in range(count))


def tell(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdin is not None
    process.stdin.write(text)
    process.stdin.flush()


def interrupted(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code, output and errors after Ctrl-C. Standard input stays open: it does not end the command."""
    assert process.stdout is not None
    assert process.stderr is not None
    process.send_signal(signal.SIGINT)
    output, errors = process.stdout.read(), process.stderr.read()
    return process.wait(), output, errors


class ClientsContract:
    """Every broker passes these tests."""

    def test_lines_come_back_in_their_order(self, client: Client, broker: KafkaBroker) -> None:
        topic = broker.new_topic()
        produced = client.produce(topic, numbered(2_000), "--partition", 0)
        assert produced.lines()[:4] == [
            f"Topic:   {topic}", "Records: 2000", f"Bytes:   {len(numbered(2_000)) - 2_000}", "Failed:  0",
        ]  # fmt: skip
        assert client.consume(topic) == numbered(2_000).splitlines()

    def test_a_line_without_an_end_an_empty_one_and_one_of_windows(self, client: Client, broker: KafkaBroker) -> None:
        topic = broker.new_topic()
        check_done(client.produce(topic, "a\n\nb\r\nc", "--partition", 0))
        assert [record["value"] for record in client.records(topic)] == ["a", "", "b", "c"]

    def test_keys_and_headers_as_text(self, client: Client, broker: KafkaBroker) -> None:
        topic = broker.new_topic()
        text = "trace:a1,origin:web\tk=v\n\tk2=v=2\n"
        check_done(client.produce(topic, text, "--headers", "--key-separator", "=", "--partition", 0))
        assert client.consume(topic, "--keys", "--headers", "--offsets") == [
            "0:0\ttrace:a1,origin:web\tk\tv",
            "0:1\t\tk2\tv=2",
        ]
        (first, _) = client.consume(topic, "--timestamps")
        assert first.split("\t")[0].isdigit()

    def test_json_lines_go_back_as_they_came(self, client: Client, broker: KafkaBroker) -> None:
        first, second = broker.new_topic(2), broker.new_topic(2)
        check_done(client.produce(first, "".join(map("{}\n".format, map(json.dumps, LINES))), "--json"))
        printed = client.consume(first, *JSON)
        read = [json.loads(line) for line in printed]
        assert sorted((of["partition"], of.pop("offset")) for of in read) == [(0, 0), (0, 1), (1, 0), (1, 1)]
        assert sorted(read, key=lambda of: of["timestamp"]) == LINES
        check_done(client.produce(second, "\n".join(printed), "--json"))
        assert sorted(client.consume(second, *JSON)) == sorted(printed)

    def test_bytes_are_printed_as_they_are(self, client: Client, broker: KafkaBroker) -> None:
        topic = broker.new_topic()
        check_done(client.produce(topic, b"\xff\x1b[1m\n", "--partition", 0))
        with client.started("consume", topic, "--until-end") as process:
            assert process.stdout is not None
            assert process.stdout.buffer.read() == b"\xff\x1b[1m\n"

    def test_checksums_of_what_was_written_and_read_agree(self, client: Client, broker: KafkaBroker) -> None:
        topic = broker.new_topic(3)
        lines = "".join(f"key-{number}={number % 7}\n" for number in range(500))
        written = client.produce(topic, lines, "--key-separator", "=", "--checksum", *JSON).json()
        read = client.run("consume", topic, "--until-end", "--checksum", *JSON).json()
        assert (read["Records"], read["Bytes"], read["Checksum"]) == (500, written["Bytes"], written["Checksum"])
        assert sum(of["Records"] for of in read["Partitions"]) == 500
        parts = [
            client.run("consume", topic, "--until-end", "--checksum", "--partition", of["Partition"], *JSON).json()
            for of in read["Partitions"]
        ]
        assert [part["Partitions"] for part in parts] == [[of] for of in read["Partitions"]]
        table = client.run("consume", topic, "--until-end", "--checksum").lines()
        assert table[-1].split() == ["all", "500", str(read["Bytes"]), read["Checksum"]]
        check_done(client.produce(topic, "key-1=1\n", "--key-separator", "="))
        again = client.run("consume", topic, "--until-end", "--checksum", *JSON).json()
        assert again["Checksum"] != read["Checksum"]

    @pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
    def test_compressed_batches(self, client: Client, broker: KafkaBroker, codec: str) -> None:
        topic = broker.new_topic()
        check_done(client.produce(topic, numbered(300), "--partition", 0, "--compression", codec))
        assert client.consume(topic) == numbered(300).splitlines()

    @pytest.mark.parametrize(
        "options",
        [("--acks", "0"), ("--acks", "1"), ("--no-idempotence",), ("--idempotence", "--acks", "all"),
         ("--batch-bytes", "1", "--linger-ms", "0")],
    )  # fmt: skip
    def test_acknowledgments_and_batches(self, client: Client, broker: KafkaBroker, options: tuple[str, ...]) -> None:
        topic = broker.new_topic()
        produced = client.produce(topic, numbered(50), "--partition", 0, *JSON, *options).json()
        assert (produced["Records"], produced["Failed"], produced["Abandoned"]) == (50, 0, 0)
        # With acks=0 nothing says when they are there.
        read = client.run("consume", topic, "--count", 50).lines()
        assert read == numbered(50).splitlines()

    def test_ranges(self, client: Client, broker: KafkaBroker) -> None:
        topic = broker.new_topic(2)
        for partition in (0, 1):
            lines = "".join(f"{partition}-{offset}\n" for offset in range(5))
            check_done(client.produce(topic, lines, "--partition", partition))
        one = ("--partition", 0)
        assert client.consume(topic, *one, "--from", 3) == ["0-3", "0-4"]
        assert client.consume(topic, *one, "--from", "end") == []
        assert sorted(client.consume(topic, *one, "--partition", 1, "--from", "beginning")) == [
            f"{partition}-{offset}" for partition in (0, 1) for offset in range(5)
        ]
        assert client.run("consume", topic, *one, "--from", 1, "--to", 3).lines() == ["0-1", "0-2"]
        assert client.run("consume", topic, *one, "--from", 3, "--to", 3).lines() == []
        assert client.run("consume", topic, *one, "--to", "end", "--count", 2).lines() == ["0-0", "0-1"]
        assert client.run("consume", topic, *one, "--from", "end", "--to", 2).lines() == []

    def test_an_offset_that_is_not_there(self, client: Client, broker: KafkaBroker) -> None:
        topic = broker.new_topic()
        check_done(client.produce(topic, numbered(2), "--partition", 0))
        refused = client.run("consume", topic, "--partition", 0, "--from", 3)
        assert refused.is_error(ErrorCode.OFFSET_OUT_OF_RANGE, "offsets 0 to 2, not 3")

    def test_what_is_not_there(self, client: Client, broker: KafkaBroker) -> None:
        topic = broker.new_topic(2)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert client.produce("nowhere", "a\n").is_error(unknown, "no topic 'nowhere'")
        assert client.run("consume", "nowhere").is_error(unknown, "no topic 'nowhere'")
        assert client.produce(topic, "a\n", "--partition", 77).is_error(unknown, "no partition 77")
        assert client.run("consume", topic, "--partition", 77).is_error(unknown, "no partition 77")

    def test_a_record_that_cannot_be_written_is_named_and_the_others_are_written(
        self, client: Client, broker: KafkaBroker
    ) -> None:
        topic = broker.new_topic()
        lines = '{"value": "a", "partition": 0}\n{"value": "b", "partition": 77}\n{"value": "c", "partition": 0}\n'
        produced = client.produce(topic, lines, "--json", *JSON)
        assert produced.code == 1
        assert [json.loads(produced.output)[name] for name in ("Records", "Failed")] == [2, 1]
        (told,) = produced.errors.splitlines()
        assert told.startswith(f"error: UNKNOWN_TOPIC_OR_PARTITION: line 2 was not written to {topic}, partition 77: ")
        assert client.consume(topic) == ["a", "c"]
        check_done(client.produce(topic, lines, "--json", "--partition", 0))

    def test_what_the_library_itself_refuses_is_named_in_the_same_way(self, broker: KafkaBroker) -> None:
        topic, failed = broker.new_topic(), []
        producer = RecordProducer(parse_endpoints(broker.address), topic, ProduceOptions(linger_ms=1), failed.append)
        producer.send(Record(b"a", partition=0), "a record")
        while producer.waiting:  # from then on the library knows how many partitions there are
            time.sleep(0.01)
        producer.send(Record(b"b", partition=77), "line 2")
        producer.finish()
        (told,) = failed
        assert told.startswith(f"UNKNOWN_TOPIC_OR_PARTITION: line 2 was not written to {topic}, partition 77: ")

    def test_a_line_that_is_no_record_ends_it_after_what_came_before(self, client: Client, broker: KafkaBroker) -> None:
        topic = broker.new_topic()
        produced = client.produce(topic, "k=1\nk=2\nnone\nk=3\n", "--key-separator", "=", *JSON)
        assert produced.code == 1
        assert json.loads(produced.output)["Records"] == 2
        assert produced.errors.startswith("error: INVALID_RECORD: line 3 is not a record: it has no '='")
        assert client.consume(topic) == ["1", "2"]

    def test_a_full_queue_is_waited_for(
        self, broker: KafkaBroker, client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(producing, "QUEUE_RECORDS_MAX", 10)
        topic, failed = broker.new_topic(), []
        producer = RecordProducer(parse_endpoints(broker.address), topic, ProduceOptions(linger_ms=1), failed.append)
        most = 0
        for number in range(500):
            producer.send(Record(b"%d" % number, partition=0), "a record")
            most = max(most, producer.waiting)
        producer.finish()
        assert (producer.deliveries.written, failed, producer.waiting) == (500, [], 0)
        assert most == 10
        assert client.consume(topic) == list(map(str, range(500)))

    def test_a_time_limit_ends_what_would_wait(self, client: Client, broker: KafkaBroker) -> None:
        refused = client.run("consume", broker.new_topic(), "--count", 1, "--timeout", 0.1)
        assert refused.is_error(ErrorCode.REQUEST_TIMED_OUT, "0.1 s")

    # --- signals and pipes --------------------------------------------------------------------------------------------

    @pytest.mark.process
    def test_standard_input_is_written_as_it_comes_and_ctrl_c_reports(
        self, client: Client, broker: KafkaBroker
    ) -> None:
        topic = broker.new_topic()
        with client.started("produce", topic, "--partition", 0, *JSON) as process:
            tell(process, "a\nb\n")
            assert client.run("consume", topic, "--partition", 0, "--count", 2).lines() == ["a", "b"]
            code, output, errors = interrupted(process)
        assert (code, json.loads(output)["Records"]) == (EXIT_INTERRUPTED, 2)
        assert "Traceback" not in errors
        assert client.consume(topic) == ["a", "b"]

    @pytest.mark.process
    def test_records_are_printed_as_they_come_and_ctrl_c_ends_without_a_word(
        self, client: Client, broker: KafkaBroker
    ) -> None:
        topic = broker.new_topic()
        with client.started("consume", topic) as process:
            assert process.stdout is not None
            for line in ("a\n", "b\n"):
                check_done(client.produce(topic, line))
                assert process.stdout.readline() == line
            assert interrupted(process) == (EXIT_INTERRUPTED, "", "")

    @pytest.mark.process
    def test_a_reader_that_goes_while_there_is_nothing_to_print(self, client: Client, broker: KafkaBroker) -> None:
        topic = broker.new_topic()
        check_done(client.produce(topic, "a\n"))
        with client.started("consume", topic) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline() == "a\n"
            process.stdout.close()
            assert (process.wait(), process.stderr.read()) == (EXIT_READER_GONE, "")

    @pytest.mark.process
    def test_a_terminal_is_shown_what_it_would_obey(self, client: Client, broker: KafkaBroker) -> None:
        topic = broker.new_topic()
        check_done(client.produce(topic, b"\x1b[31m\xff\n", "--partition", 0))
        terminal, its_end = os.openpty()
        with os.fdopen(terminal, "rb", 0) as shown:
            line = command("consume", topic, "--count", 1, *client.at)
            try:
                subprocess.run(line, stdin=its_end, stdout=its_end, stderr=its_end, timeout=60, check=True)
                assert shown.read(100) == rb"\x1b[31m\xff" + b"\r\n"
            finally:
                os.close(its_end)

    @pytest.mark.process
    def test_a_pipe_from_one_to_the_other(self, client: Client, broker: KafkaBroker) -> None:
        first, second = broker.new_topic(), broker.new_topic()
        check_done(client.produce(first, numbered(5_000), "--partition", 0))
        read = kraftlog("consume", first, "--until-end", *JSON, *client.at)
        written = kraftlog("produce", second, "--json", *JSON, *client.at, given=read.output).json()
        assert written["Records"] == 5_000
        assert client.consume(second) == numbered(5_000).splitlines()
