"""Topics of a broker, through confluent-kafka, and their files."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.clients.broker_errors import api_error

TIMEOUT_SECONDS: Final = 60.0
METADATA_TIMEOUT_SECONDS: Final = 1.0
POLL_SECONDS: Final = 0.05
LOG_SUFFIX: Final = ".log"


class Topics:
    """The topics of one broker. Every replica is on it."""

    def __init__(self, bootstrap_server: str, data_path: Path) -> None:
        """Connects to nothing. `data_path` is the directory below which the partitions' directories are."""
        self._bootstrap_server = bootstrap_server
        self._data_path = data_path

    async def create(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """Create one, and wait until each partition has a leader. Raises ApiError."""
        topic = NewTopic(name, partitions, 1, config=dict(configs or {}))
        await asyncio.to_thread(self._create, topic)
        await self.until_led({name: partitions})

    async def delete(self, name: str) -> None:
        """Delete one, and wait until its files are gone, and everything else is written back. Raises ApiError."""
        await asyncio.to_thread(self._delete, name)
        await asyncio.to_thread(self._until_files_are_gone, name)
        await asyncio.to_thread(os.sync)

    async def until_led(self, partitions: Mapping[str, int]) -> None:
        """Return when each of these topics has so many partitions, all with a leader. Raises ApiError."""
        await asyncio.to_thread(self._until_led, partitions)

    async def drop_from_page_cache(self, name: str) -> None:
        """Have the kernel forget the segments of a topic: they are read from the disk next. Raises OSError."""
        await asyncio.to_thread(_drop_from_page_cache, list(self._files(name)))

    def _client(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self._bootstrap_server, "log_level": 0})

    def _create(self, topic: NewTopic) -> None:
        try:
            self._client().create_topics([topic], operation_timeout=TIMEOUT_SECONDS)[topic.topic].result()
        except KafkaException as error:
            raise api_error(error.args[0], f"topic {topic.topic!r} cannot be created") from None

    def _delete(self, name: str) -> None:
        try:
            self._client().delete_topics([name], operation_timeout=TIMEOUT_SECONDS)[name].result()
        except KafkaException as error:
            raise api_error(error.args[0], f"topic {name!r} cannot be deleted") from None

    def _until_led(self, partitions: Mapping[str, int]) -> None:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        client = self._client()
        while not self._are_led(client, partitions):
            if time.monotonic() > deadline:
                raise ApiError(
                    ErrorCode.LEADER_NOT_AVAILABLE,
                    f"{', '.join(partitions)} at {self._bootstrap_server}: not every partition has a leader after"
                    f" {TIMEOUT_SECONDS:g} s; is the machine busy?",
                )
            time.sleep(POLL_SECONDS)

    @staticmethod
    def _are_led(client: AdminClient, partitions: Mapping[str, int]) -> bool:
        try:
            topics = client.list_topics(timeout=METADATA_TIMEOUT_SECONDS).topics
        except KafkaException:
            return False  # it does not answer yet
        return all(
            name in topics and [of.leader >= 0 for of in topics[name].partitions.values()] == [True] * count
            for name, count in partitions.items()
        )

    def _files(self, name: str) -> Iterator[Path]:
        """The segments of a topic."""
        return self._data_path.rglob(f"{name}-*/*{LOG_SUFFIX}")

    def _until_files_are_gone(self, name: str) -> None:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while any(self._data_path.rglob(f"{name}-*")) or any(self._data_path.rglob(f"{name}.*-delete")):
            if time.monotonic() > deadline:
                raise ApiError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"the files of {name!r} are still in {self._data_path} {TIMEOUT_SECONDS:g} s after it was deleted",
                )
            time.sleep(POLL_SECONDS)


def _drop_from_page_cache(files: list[Path]) -> None:
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fdatasync(descriptor)  # what is not on the disk cannot be forgotten
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
