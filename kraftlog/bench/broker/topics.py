"""Topics of brokers, through confluent-kafka, and their files."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.clients.broker_errors import api_error

TIMEOUT_SECONDS: Final = 60.0
METADATA_TIMEOUT_SECONDS: Final = 1.0
ANSWER_TIMEOUT_SECONDS: Final = 30.0
POLL_SECONDS: Final = 0.05
RECONNECT_MS: Final = 500
"""The library's default is up to 10 s, too long to wait for a broker that has just started."""
LOG_SUFFIX: Final = ".log"


class Topics:
    """The topics of some brokers. Each broker has a replica of every partition."""

    def __init__(self, bootstrap_servers: str, data_paths: Sequence[Path]) -> None:
        """Connects to nothing. `data_paths` are the brokers' directories, below which are those of the partitions."""
        self.timeout_seconds = TIMEOUT_SECONDS
        """An operation that takes longer has failed."""
        self._bootstrap_servers = bootstrap_servers
        self._data_paths = data_paths

    async def create(
        self,
        name: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        replicas: Sequence[int] | None = None,
    ) -> None:
        """Create a topic, and wait until each partition has a leader. Raises ApiError.

        With `replicas`, all partitions are on these brokers, and the first one leads them.
        """
        if replicas is None:
            topic = NewTopic(name, partitions, len(self._data_paths), config=dict(configs or {}))
        else:
            assignment = [list(replicas)] * partitions
            topic = NewTopic(name, partitions, replica_assignment=assignment, config=dict(configs or {}))
        await asyncio.to_thread(self._create, topic)
        await self.until_led({name: partitions})

    async def delete(self, *names: str) -> None:
        """Delete topics, and wait until their files are deleted and the page cache is written back. Raises ApiError."""
        await asyncio.to_thread(self._delete, names)
        for name in names:
            await asyncio.to_thread(self._until_files_are_gone, name)
        await asyncio.to_thread(os.sync)

    async def produce_to_each(self, name: str, partitions: int) -> None:
        """Produce a record to each of the first partitions, with acks=all. Raises ApiError."""
        await asyncio.to_thread(self._produce_to_each, name, partitions)

    async def until_led(self, partitions: Mapping[str, int]) -> None:
        """Return when each of these topics has its number of partitions, all with a leader. Raises ApiError."""
        await asyncio.to_thread(self._until_led, partitions)

    async def until_answered(self, partitions: Mapping[str, int]) -> None:
        """Return when the leader of each partition of these topics has answered ListOffsets. Raises ApiError."""
        await self.until_led(partitions)
        client = self._client()
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        offsets = {TopicPartition(name, index): latest for name, count in partitions.items() for index in range(count)}
        await asyncio.to_thread(self._until, lambda: _have_answered(client, offsets), "not every partition answers")

    async def until_registered(self, bootstrap_server: str) -> None:
        """Return when all brokers are registered, and the one that listens there answers. Raises ApiError."""
        client = self._client(bootstrap_server)
        await asyncio.to_thread(
            self._until, lambda: self._are_registered(client), f"{bootstrap_server} does not answer, or has no peers"
        )

    async def until_in_sync(self, name: str, broker_ids: Iterable[int]) -> None:
        """Return when exactly these replicas of each partition of a topic are in sync. Raises ApiError."""
        client, wanted = self._client(), set(broker_ids)
        await asyncio.to_thread(
            self._until, lambda: self._in_sync(client, name) == [wanted], f"{name} is not in sync on brokers {wanted}"
        )

    async def drop_from_page_cache(self, name: str) -> None:
        """Drop a topic's segments from the page cache, so that they are read from the disk. Raises OSError."""
        await asyncio.to_thread(_drop_from_page_cache, list(self._files(name)))

    @staticmethod
    def bytes_in(name: str, data_path: Path) -> int:
        """Return the bytes of a topic's segments in a broker's directory."""
        return sum(path.stat().st_size for path in _segments(name, data_path))

    def _client(self, bootstrap_servers: str | None = None) -> AdminClient:
        servers = bootstrap_servers or self._bootstrap_servers
        return AdminClient({"bootstrap.servers": servers, "log_level": 0, "reconnect.backoff.max.ms": RECONNECT_MS})

    def _create(self, topic: NewTopic) -> None:
        client = self._client()  # it must live until the future is done
        try:
            client.create_topics([topic], operation_timeout=TIMEOUT_SECONDS)[topic.topic].result()
        except KafkaException as error:
            raise api_error(error.args[0], f"topic {topic.topic!r} cannot be created") from None

    def _delete(self, names: Sequence[str]) -> None:
        client = self._client()
        for name, deleted in client.delete_topics(list(names), operation_timeout=TIMEOUT_SECONDS).items():
            try:
                deleted.result()
            except KafkaException as error:
                raise api_error(error.args[0], f"topic {name!r} cannot be deleted") from None

    def _produce_to_each(self, name: str, partitions: int) -> None:
        failed: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failed.append(error)

        producer = Producer({"bootstrap.servers": self._bootstrap_servers, "log_level": 0, "linger.ms": 0})
        for partition in range(partitions):
            producer.produce(name, b"record", partition=partition, on_delivery=delivered)
        waiting = producer.flush(TIMEOUT_SECONDS)
        if failed:
            raise api_error(failed[0], f"a record for {name!r} is not acknowledged")
        if waiting:
            raise ApiError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"{waiting} records for {name!r} are not acknowledged; is the machine busy?",
            )

    def _until_led(self, partitions: Mapping[str, int]) -> None:
        client, names = self._client(), ", ".join(partitions)
        self._until(lambda: self._are_led(client, partitions), f"not every partition of {names} has a leader")

    def _until(self, holds: Callable[[], bool], problem: str) -> None:
        deadline = time.monotonic() + self.timeout_seconds
        while not holds():
            if time.monotonic() > deadline:
                raise ApiError(
                    ErrorCode.REQUEST_TIMED_OUT, f"after {self.timeout_seconds:g} s {problem}; is the machine busy?"
                )
            time.sleep(POLL_SECONDS)

    def _are_registered(self, client: AdminClient) -> bool:
        try:
            cluster = client.describe_cluster(request_timeout=METADATA_TIMEOUT_SECONDS).result()
        except KafkaException:
            return False  # it does not answer yet
        return len(cluster.nodes) == len(self._data_paths)

    @staticmethod
    def _in_sync(client: AdminClient, name: str) -> list[set[int]]:
        """The different ISRs of a topic's partitions."""
        found: list[set[int]] = []
        with suppress(KafkaException):
            for of in client.list_topics(name, METADATA_TIMEOUT_SECONDS).topics[name].partitions.values():
                if set(of.isrs) not in found:
                    found.append(set(of.isrs))
        return found

    @staticmethod
    def _are_led(client: AdminClient, partitions: Mapping[str, int]) -> bool:
        try:
            client.describe_cluster(request_timeout=METADATA_TIMEOUT_SECONDS).result()
            for name, count in partitions.items():
                of_topic = client.list_topics(name, METADATA_TIMEOUT_SECONDS).topics[name].partitions
                if len(of_topic) < count or any(of.leader < 0 for of in of_topic.values()):
                    return False
        except KafkaException:
            return False  # it does not answer yet
        return True

    def _files(self, name: str) -> Iterator[Path]:
        """The segments of a topic."""
        for path in self._data_paths:
            yield from _segments(name, path)

    def _until_files_are_gone(self, name: str) -> None:
        patterns = (f"{name}-*", f"{name}.*-delete")
        self._until(
            lambda: not any(_has_any(path, pattern) for path in self._data_paths for pattern in patterns),
            f"the files of {name!r}, which was deleted, are still in {', '.join(map(str, self._data_paths))}",
        )


def _segments(name: str, data_path: Path) -> Iterator[Path]:
    return data_path.rglob(f"{name}-*/*{LOG_SUFFIX}")


def _has_any(path: Path, pattern: str) -> bool:
    try:
        return any(path.rglob(pattern))
    except FileNotFoundError:  # of a directory that is removed at this moment
        return True


def _have_answered(client: AdminClient, offsets: Mapping[TopicPartition, OffsetSpec]) -> bool:
    try:
        for answer in client.list_offsets(dict(offsets), request_timeout=ANSWER_TIMEOUT_SECONDS).values():
            answer.result()
    except KafkaException:
        return False
    return True


def _drop_from_page_cache(files: list[Path]) -> None:
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fdatasync(descriptor)  # what is not on the disk cannot be forgotten
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
