"""Three stock Kafka controllers, reached through Kafka's protocol, and their log, which is read as an observer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Final

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftlog.bench.peers.installed import Kafka
from kraftlog.bench.peers.kafka import controllers
from kraftlog.bench.peers.kafka_requests import Connection
from kraftlog.difftest.kafka_answers import answer_of
from kraftlog.difftest.kafka_records import from_kafka
from kraftlog.difftest.kafka_requests import VERSIONS, Known, request_of
from kraftlog.difftest.records import Record
from kraftlog.difftest.steps import Step
from kraftlog.difftest.system import SESSION_TIMEOUT_MS, Answer, Resigned, System
from kraftlog.kafka.apis import api_of
from kraftlog.kafka.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    TopicData,
)
from kraftlog.kafka.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ReplicaState
from kraftlog.kafka.messages.fetch import PartitionData as FetchedPartition
from kraftlog.kafka.record_batch import read_batches
from kraftlog.kafka.record_values import decode_metadata_record
from statemachine.words.features import METADATA_VERSION_LATEST, METADATA_VERSION_NAMES

OBSERVER_ID: Final = 9001
FETCH_VERSION: Final = 17
DESCRIBE_QUORUM_VERSION: Final = 1
METADATA_TOPIC: Final = "__cluster_metadata"
METADATA_TOPIC_ID: Final = (1).to_bytes(16, "big")
FETCH_BYTES_MAX: Final = 512 * 1024
FETCH_WAIT_MS: Final = 10
FAULT: Final = "Encountered quorum controller fault"
"""A controller logs this before it resigns; the exception follows in the next line."""

JVM_OPTIONS: Final = (
    *("-Xmx256M", "-Xms64M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true"),
)
"""Little memory and a fast start, since nothing is measured."""

RELEASE: Final = METADATA_VERSION_NAMES[METADATA_VERSION_LATEST]
"""The newest metadata.version that kraftlog has."""

SETTINGS: Final[dict[str, object]] = {
    "broker.session.timeout.ms": SESSION_TIMEOUT_MS,
    "broker.heartbeat.interval.ms": SESSION_TIMEOUT_MS // 3,
    "controller.quorum.append.linger.ms": 0,
    "metadata.max.idle.interval.ms": 0,
    "auto.leader.rebalance.enable": "false",
    "unclean.leader.election.interval.ms": 86_400_000,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "controller.quorum.fetch.timeout.ms": 20_000,
    "controller.quorum.election.timeout.ms": 2_000,
}
"""No controller acts by itself, access control entries are stored, and a busy machine does not change the leader."""


class KafkaSystem(System):
    """A running Kafka of three controllers. If another controller becomes active, every step fails."""

    def __init__(self, version: str, cluster_id: str, connection: Connection, leader_epoch: int, log: Path) -> None:
        super().__init__()
        self._log = log
        self._version = version
        self._cluster_id = cluster_id
        self._connection = connection
        self._leader_epoch = leader_epoch
        self._end_offset = 0
        self._last_epoch = 0

    @classmethod
    @asynccontextmanager
    async def running(cls, kafka: Kafka, directory: Path) -> AsyncIterator[KafkaSystem]:
        """A new cluster in `directory`, running within the block. Raises ApiError if it does not start."""
        java_command = [str(kafka.java), *JVM_OPTIONS, "-cp", str(kafka.jars / "*")]
        options = ["--release-version", RELEASE]
        async with controllers(java_command, directory, SETTINGS, options) as (servers, endpoints, cluster_id):
            connection, leader_id, leader_epoch = await servers.until(lambda: _active(endpoints))
            log = directory / f"kafka-{leader_id}.log"
            try:
                yield cls(kafka.version, cluster_id, connection, leader_epoch, log)
            finally:
                connection.close()

    @property
    def name(self) -> str:
        """Kafka and its version."""
        return f"Kafka {self._version}"

    async def execute(self, step: Step) -> Answer:
        """Carry out a step as one request."""
        known = Known(self.image, self.names, self._cluster_id, self._end_offset)
        request = request_of(step, known)
        response = await self._connection.call(request, VERSIONS[request.KEY], api_of(request.KEY).response)
        return answer_of(step, response)

    async def read_records(self) -> list[Record]:
        """Return the new committed records.

        A controller answers after the records of a request are committed, so its log has them when the answer arrives.
        """
        records: list[Record] = []
        while True:
            fetched = await self._fetch()
            for batch in read_batches(fetched.records or b""):
                if batch.end_offset <= self._end_offset:
                    continue
                if batch.end_offset > fetched.high_watermark:
                    break
                if not batch.is_control:
                    for record in batch.records():
                        self.take(from_kafka(decode_metadata_record(record.value or b"")[0], self.names), records)
                self._end_offset, self._last_epoch = batch.end_offset, batch.partition_leader_epoch
            if self._end_offset >= fetched.high_watermark:
                return records

    async def _fetch(self) -> FetchedPartition:
        partition = FetchPartition(
            partition=0,
            current_leader_epoch=self._leader_epoch,
            fetch_offset=self._end_offset,
            last_fetched_epoch=self._last_epoch,
            log_start_offset=0,
            partition_max_bytes=FETCH_BYTES_MAX,
        )
        request = FetchRequest(
            cluster_id=self._cluster_id,
            replica_state=ReplicaState(replica_id=OBSERVER_ID),
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=0,
            max_bytes=FETCH_BYTES_MAX,
            topics=(FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=(partition,)),),
        )
        response = await self._connection.call(request, FETCH_VERSION, FetchResponse)
        if response.error_code or not response.responses:
            raise ApiError(ErrorCode.NOT_CONTROLLER, f"Kafka refused a Fetch with error {response.error_code}")
        (fetched,) = response.responses[0].partitions
        if fetched.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            raise Resigned(ErrorCode.NOT_CONTROLLER, _fault_in(self._log))
        if fetched.error_code or fetched.diverging_epoch.epoch >= 0 or fetched.snapshot_id.epoch >= 0:
            raise ApiError(
                ErrorCode.NOT_CONTROLLER,
                f"Kafka returned no records from offset {self._end_offset} on: error {fetched.error_code}",
            )
        return fetched


def _fault_in(log: Path) -> str:
    """Return the exception after which a controller last resigned, from its log file."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    faults = [after for line, after in pairwise(lines) if FAULT in line]
    return f"Kafka's controller resigned: {faults[-1] if faults else 'its log has no reason'}"


async def _active(endpoints: list[Endpoint]) -> tuple[Connection, int, int] | None:
    """Return a connection to the active controller, its id and its epoch; None if there is none yet.

    Controller n has the n-th endpoint, from 1.
    """
    for endpoint in endpoints:
        try:
            connection = await Connection.open(endpoint)
        except ApiError:
            continue
        try:
            leader_id, leader_epoch = await _leader(connection)
        except ApiError:
            continue
        finally:
            connection.close()
        if leader_id > 0:
            return await Connection.open(endpoints[leader_id - 1]), leader_id, leader_epoch
    return None


async def _leader(connection: Connection) -> tuple[int, int]:
    """Return the leader and its epoch; -1 for both if the leader is unknown or has committed nothing."""
    request = DescribeQuorumRequest(
        topics=(TopicData(topic_name=METADATA_TOPIC, partitions=(PartitionData(partition_index=0),)),)
    )
    response = await connection.call(request, DESCRIBE_QUORUM_VERSION, DescribeQuorumResponse)
    if response.error_code or not response.topics:
        return -1, -1
    (partition,) = response.topics[0].partitions
    if partition.error_code or partition.high_watermark <= 0:
        return -1, -1
    return partition.leader_id, partition.leader_epoch
