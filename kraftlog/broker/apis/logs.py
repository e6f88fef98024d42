"""DescribeLogDirs: in which directory each log is, and how large it is."""

from __future__ import annotations

from collections.abc import Generator
from typing import cast

from kraftbase.errors import ErrorCode
from kraftbase.partition import TopicPartition
from kraftlog.broker.apis.services import BrokerServices
from kraftlog.kafka.messages.describe_log_dirs import (
    FIRST_VERSION_WITH_TAGS,
    FULL,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kraftlog.network.requests import ClientRequest, Reply, Steps
from kraftlog.storage.log_directory import LogDirectory


class DescribeLogDirsApi:
    """Handles DescribeLogDirs (KIP-113, KIP-827, KIP-1066)."""

    def __init__(self, services: BrokerServices) -> None:
        self._logs = services.logs
        self._disk_space = services.disk_space

    def handle(self, request: ClientRequest, reply: Reply) -> None:
        """Answer without waiting."""
        request.slices.run(self._in_slices(request, reply))

    def _in_slices(self, request: ClientRequest, reply: Reply) -> Steps:
        body = cast(DescribeLogDirsRequest, request.body)
        wanted: set[TopicPartition] | None = None
        if body.topics is not None:
            wanted = set()
            for topic in body.topics:
                for index in topic.partitions:
                    wanted.add(TopicPartition(topic.topic, index))
                    yield
        results: list[DescribeLogDirsResult] = []
        for directory in self._logs.directories:
            result = yield from self._result(directory, wanted, has_tags=request.version >= FIRST_VERSION_WITH_TAGS)
            results.append(result)
        results += [
            DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=path, topics=())
            for path in self._logs.failed
        ]
        reply(DescribeLogDirsResponse(results=tuple(results)))

    def _result(
        self, directory: LogDirectory, wanted: set[TopicPartition] | None, *, has_tags: bool
    ) -> Generator[None, None, DescribeLogDirsResult]:
        if directory.offline_reason:
            return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=directory.path, topics=())
        topics: dict[str, list[DescribeLogDirsPartition]] = {}
        for name, log in sorted(directory.logs.items()):
            if wanted is None or name in wanted:
                topics.setdefault(name.topic, []).append(
                    DescribeLogDirsPartition(
                        partition_index=name.partition_id,
                        partition_size=log.size_bytes,
                        offset_lag=max(0, log.high_watermark - log.log_end_offset),
                    )
                )
            yield
        space = self._disk_space(directory.path)
        return DescribeLogDirsResult(
            log_dir=directory.path,
            topics=tuple(
                DescribeLogDirsTopic(name=name, partitions=tuple(partitions)) for name, partitions in topics.items()
            ),
            total_bytes=space.total_bytes,
            usable_bytes=space.usable_bytes,
            is_cordoned=directory.directory_id in self._logs.cordoned,
            unknown_tags=(FULL,) if directory.full_disk.is_full and has_tags else (),
        )
