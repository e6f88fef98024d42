"""Kafka 4.3's own command-line tools, and Spark's Kafka source and sink, with our brokers. `make peers` runs this."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from kraftlog.local.cluster import LocalCluster
from kraftlog.local.cluster_directory import open_or_create
from tests.java import JARS, needs_kafka
from tests.kraftlog.command_line import environment, running_brokers
from tests.paths import ROOT
from tests.process.conftest import addresses, running

SPARK_JARS: Final = ROOT / "build" / "peers" / "spark"
COUNT: Final = 1_000
TIMEOUT_SECONDS: Final = 120.0

pytestmark = [
    pytest.mark.process,
    needs_kafka,
]


class Kafka(NamedTuple):
    """A running cluster with a broker, and where that is."""

    servers: str
    data: Path

    def tool(self, name: str, *arguments: object, given: str = "") -> str:
        """What a tool prints, by its Java class."""
        command = ["java", "-Xmx256m", "-cp", f"{JARS}/*", name, "--bootstrap-server", self.servers]
        ended = subprocess.run(
            [*command, *map(str, arguments)],
            capture_output=True, text=True, input=given, timeout=TIMEOUT_SECONDS, check=False,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    def create(self, topic: str, *options: object) -> None:
        self.tool(TOPICS, "--create", "--topic", topic, "--partitions", 3, *options)

    def write(self, topic: str, values: range) -> None:
        lines = "".join(f"key-{number}\tvalue-{number}\n" for number in values)
        self.tool(PRODUCER, "--topic", topic, "--reader-property", "parse.key=true", given=lines)

    def offsets(self, topic: str, *options: object) -> dict[int, int]:
        """By partition."""
        printed = self.tool(OFFSETS, "--topic", topic, *options)
        return {
            int(partition): int(offset) for partition, offset in re.findall(rf"^{topic}:(\d+):(\d+)$", printed, re.M)
        }


TOPICS: Final = "org.apache.kafka.tools.TopicCommand"
CONFIGS: Final = "kafka.admin.ConfigCommand"
PRODUCER: Final = "org.apache.kafka.tools.ConsoleProducer"
CONSUMER: Final = "org.apache.kafka.tools.consumer.ConsoleConsumer"
OFFSETS: Final = "org.apache.kafka.tools.GetOffsetShell"
LOG_DIRS: Final = "org.apache.kafka.tools.LogDirsCommand"
DELETE_RECORDS: Final = "org.apache.kafka.tools.DeleteRecordsCommand"
DUMP_LOG: Final = "org.apache.kafka.tools.DumpLogSegments"
VERSIONS: Final = "org.apache.kafka.tools.BrokerApiVersionsCommand"


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """One voter and one broker."""
    directory = tmp_path_factory.mktemp("kafka-tools")
    cluster = LocalCluster(open_or_create(directory / "cluster", voters=1))
    data = directory / "broker"
    with running(cluster), running_brokers(addresses(cluster), 1, options=("--data-dir", data)) as (servers,):
        yield Kafka(servers, data / "partitions")


def test_kafka_topics(kafka: Kafka) -> None:
    kafka.create("told", "--config", "retention.ms=1000000")
    kafka.tool(TOPICS, "--alter", "--topic", "told", "--partitions", 5)
    printed = kafka.tool(TOPICS, "--describe", "--topic", "told")
    assert re.search(
        r"Topic: told\s.*PartitionCount: 5\s+ReplicationFactor: 1\s+Configs:.*retention.ms=1000000", printed
    )
    assert len(re.findall(r"Partition: \d+\s+Leader: 1\s+Replicas: 1\s+Isr: 1", printed)) == 5
    kafka.tool(TOPICS, "--delete", "--topic", "told")
    assert "told" not in kafka.tool(TOPICS, "--list").split()


def test_kafka_configs(kafka: Kafka) -> None:
    kafka.create("configured")
    of_topic = ("--entity-type", "topics", "--entity-name", "configured")
    kafka.tool(CONFIGS, "--alter", *of_topic, "--add-config", "segment.bytes=2000000,cleanup.policy=delete")
    printed = kafka.tool(CONFIGS, "--describe", *of_topic)
    assert "segment.bytes=2000000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:segment.bytes=2000000" in printed
    kafka.tool(CONFIGS, "--alter", *of_topic, "--delete-config", "segment.bytes")
    assert "segment.bytes=" not in kafka.tool(CONFIGS, "--describe", *of_topic)
    of_broker = ("--entity-type", "brokers", "--entity-name", 1)
    kafka.tool(CONFIGS, "--alter", *of_broker, "--add-config", "log.retention.ms=5000000")
    assert "log.retention.ms=5000000" in kafka.tool(CONFIGS, "--describe", *of_broker)
    of_client = ("--entity-type", "clients", "--entity-name", "greedy")
    kafka.tool(CONFIGS, "--alter", *of_client, "--add-config", "producer_byte_rate=1000000")
    assert "producer_byte_rate=1000000" in kafka.tool(CONFIGS, "--describe", *of_client)
    of_user = ("--entity-type", "users", "--entity-name", "alice")
    kafka.tool(CONFIGS, "--alter", *of_user, "--add-config", "consumer_byte_rate=1000000")
    assert "consumer_byte_rate=1000000" in kafka.tool(CONFIGS, "--describe", "--entity-type", "users")  # DB-111


def test_console_producer_and_consumer_get_offsets_log_dirs_delete_records_and_dump_log(
    kafka: Kafka, tmp_path: Path
) -> None:
    kafka.create("written")
    kafka.write("written", range(COUNT))
    ends = kafka.offsets("written")
    assert sorted(ends) == [0, 1, 2]
    assert sum(ends.values()) == COUNT
    read: list[str] = []
    for partition, end in ends.items():
        options = ("--partition", partition, "--offset", "earliest", "--max-messages", end)
        read += kafka.tool(
            CONSUMER, "--topic", "written", *options, "--formatter-property", "print.key=true"
        ).splitlines()
    assert sorted(read) == sorted(f"key-{number}\tvalue-{number}" for number in range(COUNT))
    printed = kafka.tool(LOG_DIRS, "--describe", "--topic-list", "written")
    assert str(kafka.data) in printed
    assert printed.count('"partition":"written-') == 3
    wanted = tmp_path / "delete.json"
    wanted.write_text('{"partitions": [{"topic": "written", "partition": 0, "offset": 5}], "version": 1}')
    assert "low_watermark: 5" in kafka.tool(DELETE_RECORDS, "--offset-json-file", wanted)
    assert kafka.offsets("written", "--time", "-2")[0] == 5
    assert kafka.offsets("written") == ends
    segment = kafka.data / "written-1" / f"{0:020}.log"
    dumped = subprocess.run(
        ["java", "-cp", f"{JARS}/*", DUMP_LOG, "--deep-iteration", "--files", str(segment)],
        capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=True,
    ).stdout  # fmt: skip
    assert len(re.findall(r"^\| offset: ", dumped, re.M)) == ends[1]
    assert "isvalid: true" in dumped
    assert "isvalid: false" not in dumped


def test_it_offers_what_a_stock_client_needs(kafka: Kafka) -> None:
    printed = kafka.tool(VERSIONS)
    assert re.search(r"Produce\(0\): \d+ to 13 \[usable: 13\]", printed)
    assert re.search(r"Fetch\(1\): \d+ to \d+ \[usable: 1[78]\]", printed)


SPARK_PROGRAM: Final = textwrap.dedent(
    """
    import sys
    from pyspark.sql import SparkSession

    jars, servers, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    session = SparkSession.builder.master("local[1]").config("spark.jars", jars).config("spark.ui.enabled", "false")
    with session.getOrCreate() as spark:
        rows = spark.range(count).selectExpr("cast(id as string) as key", "concat('value-', id) as value")
        kafka = {"kafka.bootstrap.servers": servers}
        rows.write.format("kafka").options(**kafka).option("topic", "sparked").save()
        read = spark.read.format("kafka").options(**kafka).option("subscribe", "sparked").load()
        values = {row.value for row in read.selectExpr("cast(value as string) as value").collect()}
        print(f"written and read: {read.count()}, {values == {f'value-{number}' for number in range(count)}}")
    """
)


@pytest.mark.spark
def test_spark_writes_to_a_topic_and_reads_it(kafka: Kafka, tmp_path: Path) -> None:
    if not SPARK_JARS.exists():
        pytest.skip(f"{SPARK_JARS.relative_to(ROOT)} is missing; `make peers` fetches it")
    kafka.create("sparked")
    program = tmp_path / "program.py"
    program.write_text(SPARK_PROGRAM)
    jars = ",".join(str(jar) for jar in sorted(SPARK_JARS.glob("*.jar")))
    ended = subprocess.run(
        [sys.executable, str(program), jars, kafka.servers, str(COUNT)],
        capture_output=True, text=True, timeout=300, check=False, env=environment(),
    )  # fmt: skip
    assert f"written and read: {COUNT}, True" in ended.stdout, ended.stderr[-2_000:]
