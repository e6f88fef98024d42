"""The demo's data brokers: a Kafka client writes records to them, the one that leads is killed, and nothing is lost."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final, NamedTuple

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.partition import TopicPartition
from kraftbase.sentinels import NO_LEADER
from kraftlog.admin.client.client import AdminClient, NewTopic
from kraftlog.clients.replica_tables import COLUMNS, replica_rows
from kraftlog.clients.replicas import Replicas, describe_replicas
from kraftlog.demo.command import run_command
from kraftlog.local.brokers import LocalBrokers
from kraftlog.local.cluster import LocalCluster
from statemachine.query.partition_descriptions import ElectionType

TOPIC: Final = "clicks"
PARTITIONS: Final = 3
BROKERS: Final = 3
MIN_IN_SYNC: Final = 2
RECORDS: Final = 100_000
RECORDS_PER_WRITE: Final = 1_000
WRITTEN_BEFORE_KILL: Final = RECORDS // 2
COMMITTED_BEFORE_KILL: Final = RECORDS // 10
TIMEOUT_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.05
LEADERS_POLL_SECONDS: Final = 0.01


class Digest(NamedTuple):
    """The number and the digest of written or read records; the digest does not depend on their order."""

    records: int
    checksum: str


class DataBrokers:
    """Three brokers with a topic that each of them has a replica of, led by the first one."""

    def __init__(self, cluster: LocalCluster, client: AdminClient) -> None:
        """Starts nothing. The brokers are beside the nodes of the cluster."""
        nodes = cluster.bootstrap_servers
        self._nodes = nodes
        self._client = client
        self._processes = LocalBrokers(client, nodes, cluster.directory.path, BROKERS, None)
        self.leader, *self.followers = self._processes.broker_ids
        self.committed_before_kill = 0
        """How many records were committed when the leader was killed."""
        self.leaderless_seconds = 0.0
        """The time from the kill of the leader until each of its partitions had another one."""

    async def start(self) -> None:
        """Start the brokers that do not run."""
        await self._processes.start()

    async def stop(self) -> None:
        """Stop all."""
        await self._processes.stop()

    async def create_topic(self) -> None:
        """A topic that is on these brokers only: the demo's other brokers keep nothing."""
        first, second = [self.leader, *self.followers], [self.leader, *reversed(self.followers)]
        assignments = {partition: second if partition % 2 else first for partition in range(PARTITIONS)}
        configs = {"min.insync.replicas": str(MIN_IN_SYNC)}
        await self._client.create_topics([NewTopic(TOPIC, assignments=assignments, configs=configs)])

    async def write_while_the_leader_is_killed(self) -> Digest:
        """Write `RECORDS` records by `kraftlog produce`, which uses confluent-kafka; return the acknowledged ones."""
        options = ("--json", "--compression", "lz4", "--acks", "all", "--checksum", "--output", "json")
        servers = await self._servers()
        return _digest(
            await run_command("produce", TOPIC, "--bootstrap-server", servers, *options, given=self._lines())
        )

    async def _lines(self) -> AsyncIterator[bytes]:
        """All records. When half of them are sent and some are committed, the leader is killed."""
        killing: asyncio.Task[None] | None = None
        for start in range(0, RECORDS, RECORDS_PER_WRITE):
            if start == WRITTEN_BEFORE_KILL:
                found = await self._until(
                    lambda found: _committed(found) >= COMMITTED_BEFORE_KILL, "too little is committed"
                )
                self.committed_before_kill = _committed(found)
                killing = asyncio.create_task(self._kill_the_leader())
            yield b"".join(map(_line, range(start, start + RECORDS_PER_WRITE)))
        if killing is not None:
            await killing

    async def _kill_the_leader(self) -> None:
        """SIGKILL, and wait until its partitions have other leaders."""
        killed = time.monotonic()
        await self._processes.kill(self.leader)
        deadline = killed + TIMEOUT_SECONDS
        while True:
            described = await self._client.describe_topics([TOPIC])
            led = {partition.leader for topic in described.topics for partition in topic.partitions}
            if not led & {self.leader, NO_LEADER}:
                break
            if time.monotonic() > deadline:
                raise ApiError(
                    ErrorCode.REQUEST_TIMED_OUT, f"broker {self.leader} still leads after {TIMEOUT_SECONDS:g} s"
                )
            await asyncio.sleep(LEADERS_POLL_SECONDS)
        self.leaderless_seconds = time.monotonic() - killed

    async def read(self) -> Digest:
        """Read all records by `kraftlog consume`."""
        at = ("--bootstrap-server", await self._servers())
        return _digest(await run_command("consume", TOPIC, *at, "--until-end", "--checksum", "--output", "json"))

    async def wait_for_isr(self, members: Sequence[int]) -> float:
        """Wait until these are the ISR of each partition; return after how many seconds."""
        started = time.monotonic()
        await self._until(lambda found: _isrs(found) == {frozenset(members)}, f"the ISRs are not {list(members)}")
        return time.monotonic() - started

    async def lead_again(self) -> None:
        """Make the first broker lead all partitions, and return when it does."""
        partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        await self._client.elect_leaders(ElectionType.PREFERRED, partitions)
        await self._until(
            lambda found: _leaders(found) == {self.leader} and not found.silent, f"broker {self.leader} does not lead"
        )

    async def replicas(self) -> tuple[Sequence[str], list[dict[str, Any]]]:
        """Columns and rows of what `kraftlog topics describe --replicas` shows."""
        return COLUMNS, replica_rows(await describe_replicas(self._nodes, [TOPIC]))

    async def _servers(self) -> str:
        """Where clients reach the brokers that run."""
        states = await self._processes.states()
        running = [of for of in self._processes.broker_ids if self._processes.is_running(of)]
        return ",".join(str(states[broker_id].endpoint) for broker_id in running)

    async def _until(self, holds: Callable[[Replicas], bool], problem: str) -> Replicas:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not holds(found := await describe_replicas(self._nodes, [TOPIC])):
            if time.monotonic() > deadline:
                raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"{problem} after {TIMEOUT_SECONDS:g} s")
            await asyncio.sleep(POLL_SECONDS)
        return found


def _committed(found: Replicas) -> int:
    return sum(answer.high_watermark for answer in found.answers.values() if answer.high_watermark > 0)


def _isrs(found: Replicas) -> set[frozenset[int]]:
    return {frozenset(partition.isr) for topic in found.topics for partition in topic.partitions}


def _leaders(found: Replicas) -> set[int]:
    return {partition.leader for topic in found.topics for partition in topic.partitions}


def _digest(printed: dict[str, Any]) -> Digest:
    return Digest(printed["Records"], printed["Checksum"])


def _line(number: int) -> bytes:
    return json.dumps({"key": f"user-{number % 1_000}", "value": f"page {number}"}).encode() + b"\n"
