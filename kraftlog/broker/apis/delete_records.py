"""DeleteRecords: raises the leader's log start offset, and waits until living followers have raised theirs (DB-65)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.runtime import Runtime, Timer
from kraftbase.sentinels import UNKNOWN_OFFSET
from kraftlog.broker.apis.services import RecordServices
from kraftlog.kafka.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from kraftlog.network.requests import ClientRequest, Reply, Steps
from kraftlog.replicas.partitions.partition import Partition
from kraftlog.storage.partition_log import HIGH_WATERMARK
from statemachine.words.names import INTERNAL_TOPICS


class DeleteRecordsApi:
    """Handles DeleteRecords (DB-65)."""

    def __init__(self, services: RecordServices) -> None:
        self._lookup = services.lookup
        self._runtime = services.runtime

    def handle(self, request: ClientRequest, reply: Reply) -> None:
        """Answer when no living replica starts below the requested offsets, or after the request's timeout.

        The leader's new log start offset is durable at once; retention deletes the segments below it later.
        """
        request.slices.run(self._in_slices(request, reply))

    def _in_slices(self, request: ClientRequest, reply: Reply) -> Steps:
        """Of a partition that is named several times only the last offset counts, as in Kafka."""
        body = cast(DeleteRecordsRequest, request.body)
        offsets: dict[tuple[str, int], int] = {}
        for topic in body.topics:
            for partition in topic.partitions:
                offsets[topic.name, partition.partition_index] = partition.offset
                yield
        parts = []
        for (name, index), offset in offsets.items():
            parts.append(self._delete(name, index, offset))
            yield
        delayed = _DelayedDeletion(parts, lambda: request.slices.run(_answer(parts, reply)))
        yield from delayed.begin(self._runtime, body.timeout_ms)
        if delayed.is_waiting:
            request.on_client_done.append(delayed.time_out)

    def _delete(self, topic: str, index: int, offset: int) -> _Deletion:
        deletion = _Deletion(topic, index)
        try:
            if topic in INTERNAL_TOPICS:
                raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"only coordinators may delete records of {topic}")
            partition = self._lookup.named(topic, index)
            log = partition.leader_log()
            if not log.config.is_deleted:
                raise ApiError(
                    ErrorCode.POLICY_VIOLATION, f"cannot delete records of {topic}: its cleanup.policy is compact"
                )
            wanted = log.high_watermark if offset == HIGH_WATERMARK else offset
            log.delete_records(wanted)
            deletion.partition, deletion.wanted = partition, wanted
        except ApiError as error:
            deletion.error = error.code
        return deletion


@dataclass(slots=True, eq=False)
class _Deletion:
    """The deletion of records of one partition."""

    topic: str
    index: int
    partition: Partition | None = None
    wanted: int = 0
    low_watermark: int = UNKNOWN_OFFSET
    error: ErrorCode = ErrorCode.NONE

    @property
    def is_waiting(self) -> bool:
        """Whether a living replica may still start below the requested offset."""
        return self.error is ErrorCode.NONE and self.low_watermark < self.wanted

    def check(self) -> None:
        """Read the low watermark, and check that this broker still leads the partition."""
        if self.partition is None:
            return
        try:
            self.partition.leader_log()
            self.low_watermark = self.partition.low_watermark
        except ApiError as error:
            self.error = error.code


class _DelayedDeletion:
    """A request that waits for its followers."""

    def __init__(self, parts: list[_Deletion], on_done: Callable[[], None]) -> None:
        self._parts = parts
        self._on_done = on_done
        self._timer: Timer | None = None
        self._waiting: dict[Partition, _Deletion] = {}
        self.is_waiting = True
        self._is_begun = False
        """Whether all partitions have been checked once."""

    def begin(self, runtime: Runtime, timeout_ms: int) -> Steps:
        """Answer now, when the followers have raised their log start offsets, or after `timeout_ms`; work in slices."""
        try:
            for part in self._parts:
                part.check()
                if part.partition is not None and part.is_waiting:
                    self._waiting[part.partition] = part
                    part.partition.watch(self)
                yield
        except GeneratorExit:
            self._end()
            raise
        self._is_begun = True
        if not self._waiting:
            self._finish()
            return
        self._timer = runtime.call_later(max(0, timeout_ms), self.time_out)

    def partition_changed(self, partition: Partition) -> None:
        """A follower has raised its log start offset, or another broker leads."""
        part = self._waiting.get(partition)
        if part is None:
            return
        part.check()
        if not part.is_waiting:
            del self._waiting[partition]
            partition.unwatch(self)
        if self._is_begun and self.is_waiting and not self._waiting:
            self._finish()

    def time_out(self) -> None:
        """Answer now: the timeout has expired, or the client sends nothing more."""
        if self.is_waiting:
            for part in self._waiting.values():
                part.error = ErrorCode.REQUEST_TIMED_OUT
            self._finish()

    def _finish(self) -> None:
        self._end()
        self._on_done()

    def _end(self) -> None:
        self.is_waiting = False
        if self._timer is not None:
            self._timer.cancel()
        for partition in self._waiting:
            partition.unwatch(self)


def _answer(parts: list[_Deletion], reply: Reply) -> Steps:
    topics: dict[str, list[DeleteRecordsPartitionResult]] = {}
    for partition in parts:
        topics.setdefault(partition.topic, []).append(
            DeleteRecordsPartitionResult(
                partition_index=partition.index, low_watermark=partition.low_watermark, error_code=partition.error
            )
        )
        yield
    results = [
        DeleteRecordsTopicResult(name=name, partitions=tuple(partition_parts))
        for name, partition_parts in topics.items()
    ]
    reply(DeleteRecordsResponse(topics=tuple(results)))
