"""Fetches the partitions that one broker leads: request, response, appends, flush, and the next request (DB-37).

- At most one request is in flight. With `flush.before.ack` its fetch offsets cover only durable records: after a
  response the next request waits until the appended records are flushed, by one group commit for all logs of a
  directory. So acks=all means: on the disks of all replicas in sync.
- A partition whose state has changed is touched, and only touched partitions are prepared for the next request:
  hundreds of unchanged partitions cost nothing.
- A problem with one partition delays or stops only that partition (DB-36); a problem with the broker delays all
  partitions that are fetched from it.
- The leader parks a request for up to `replica.fetch.wait.max.ms`. A partition that is added during that time would
  have to wait as long, and with it every acks=all of its new leader. So the request is abandoned, at most once in that
  time.

The fetcher's state (`kraftlog.replicas.replication.fetcher_states`) shows what it does. The end of each state calls
`_request_next`, which alone decides what is next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import Final, cast

import structlog

from kraftbase.errors import ApiError, ErrorCode, OutOfSpace
from kraftbase.runtime import Timer
from kraftlog.kafka.messages.fetch import FetchRequest, FetchResponse, PartitionData, ReplicaState
from kraftlog.kafka.notation import Message, Versions
from kraftlog.replicas.replication.delays import Delays
from kraftlog.replicas.replication.fetch_session import FetchSession, PartitionKey
from kraftlog.replicas.replication.fetcher_states import (
    FETCH_IN_FLIGHT,
    IDLE,
    STOPPED,
    TRUNCATING,
    WAITING_FOR_FLUSH,
    AskingOffsets,
    BackingOff,
    FetcherState,
    checked_fetcher_edge,
)
from kraftlog.replicas.replication.followed_partition import FollowedPartition, State, view_of
from kraftlog.replicas.replication.follower import Follower
from kraftlog.replicas.replication.follower_throttle import FollowerThrottle
from kraftlog.replicas.replication.following import (
    Append,
    AskOffsets,
    AwaitMetadata,
    Ignore,
    Retry,
    StartOver,
    Step,
    Truncate,
    after_offsets,
    next_step,
)
from kraftlog.replicas.replication.leader_offsets import Found, LeaderLog, LeaderOffsets
from kraftlog.replicas.replication.ports import Followable, LeaderConnection
from kraftlog.replicas.replication.touched_partitions import NOT_DUE, TouchedPartitions
from kraftlog.storage.partition_log import PartitionLog
from kraftlog.storage.slices import SLICE_PARTITIONS

logger = structlog.get_logger(__name__)

FETCH_VERSIONS: Final = Versions(15, 18)
"""From the first version with a broker epoch (`ReplicaState`) to the last one that this program knows."""

INTERRUPT_AFTER_MS: Final = 20
"""A request without a response for this long is assumed to be parked, since other responses come sooner."""

CUTS_MS: Final = 5.0
"""Truncations that take longer than this continue in another turn of the loop."""

RECONNECT_MS_MIN: Final = 100
"""The shortest time from a failure to the next connection, for which a new leader epoch gives cause."""


class ReplicaFetcher:
    """Follows one broker. For one thread."""

    def __init__(self, source_id: int, follower: Follower) -> None:
        self.source_id = source_id
        self._follower = follower
        self._logs = follower.logs
        self._runtime = follower.runtime
        self._settings = follower.settings
        self._session = FetchSession()
        self._followed: dict[PartitionKey, FollowedPartition] = {}
        self._touched = TouchedPartitions(follower.runtime, self._request_next)
        self._throttled = FollowerThrottle(
            follower.broker_id, follower.throttle, follower.quota, follower.runtime, self._resume
        )
        self._delays = Delays(follower.runtime, follower.settings.backoff_ms, self._resume)
        self._connection: LeaderConnection | None = None
        self.state: FetcherState = IDLE
        self._flush_count = 0
        """The number of logs that are being flushed before the next request."""
        self._truncations: deque[tuple[FollowedPartition, Step]] = deque()
        """The logs to truncate or start over before the next request."""
        self._out_of_range: list[FollowedPartition] = []
        """The partitions for which to ask the leader's offsets before the next request."""
        self._interrupted_ms = follower.runtime.now_ms() - follower.settings.wait_max_ms
        self._interrupt_timer: Timer | None = None
        self._is_unreachable = False

    def __len__(self) -> int:
        """The number of followed partitions."""
        return len(self._followed)

    def __iter__(self) -> Iterator[FollowedPartition]:
        return iter(self._followed.values())

    # --- followed partitions ------------------------------------------------------------------------------------------

    def follow(self, key: PartitionKey, partition: Followable) -> None:
        """Follow a partition in its present leader epoch."""
        self.unfollow(key)
        self._followed[key] = FollowedPartition(partition, key, self._follower.observer)
        self._touched.add(key)
        if isinstance(self.state, BackingOff):
            self._retry_sooner(self.state)
        elif self.state is FETCH_IN_FLIGHT and self._interrupt_timer is None:
            self._interrupt_timer = self._runtime.call_later(INTERRUPT_AFTER_MS, self._interrupt)

    def unfollow(self, key: PartitionKey) -> None:
        """Stop following a partition, if it is followed."""
        followed = self._followed.pop(key, None)
        if followed is not None:
            self._delays.drop(followed)
            self._throttled.untrack(followed)
            self._session.remove(key)

    def stop(self) -> None:
        """Stop following all partitions, for good."""
        if self.state is STOPPED:
            return
        self._followed.clear()
        self._truncations.clear()
        self._disconnect()
        if isinstance(self.state, BackingOff):
            self.state.timer.cancel()
        self.state = checked_fetcher_edge(self.state, STOPPED)
        if self._interrupt_timer is not None:
            self._interrupt_timer.cancel()
        self._delays.stop()
        self._throttled.stop()

    # --- requests -----------------------------------------------------------------------------------------------------

    def _request_next(self) -> None:
        """Prepare the touched partitions, then send the next request, or begin the work that must precede it.

        The end of that work calls this method again.
        """
        touched = self._touched
        touched.begin_look()
        try:
            while touched.keys:
                for key in touched.take_all():
                    followed = self._followed.get(key)
                    if followed is not None:
                        self._prepare(followed)
        finally:
            touched.end_look()
        if self.state is WAITING_FOR_FLUSH and not self._flush_count:
            self.state = checked_fetcher_edge(self.state, IDLE)
        if self.state is not IDLE:
            return
        if self._flush_count:
            self.state = checked_fetcher_edge(self.state, WAITING_FOR_FLUSH)
        elif self._out_of_range:
            self._ask_offsets()
        else:
            self._fetch()

    def _fetch(self) -> None:
        for followed in self._throttled.take_throttled():
            self._leave_out(followed, State.THROTTLED)
        if len(self._session):
            self._send()

    def _prepare(self, followed: FollowedPartition) -> None:
        """Add a partition to the next request, if it may be fetched."""
        if followed.state is not State.READY:
            return
        log = followed.partition.log
        if log is None:
            self._leave_out(followed, State.STOPPED)
            return
        try:
            followed.begin(log)
        except ApiError as error:
            self._storage_failed(followed, error)
            return
        if log.config.flush_before_ack and log.recovery_point < log.log_end_offset:
            self._flush(followed, log)
        if followed.state is State.READY:
            self._throttled.track(followed)
            self._session.want(followed.key, followed.position(log, self._settings.max_bytes))

    def _flush(self, followed: FollowedPartition, log: PartitionLog) -> None:
        """Flush the log as its topic requires; the partition is touched when that is done."""
        followed.state = State.FLUSHING
        self._flush_count += 1
        log.acknowledge(log.log_end_offset, partial(self._flushed, followed))

    def _flushed(self, followed: FollowedPartition, error: ApiError | None) -> None:
        self._flush_count -= 1
        if self._followed.get(followed.key) is followed and followed.state is State.FLUSHING:
            followed.state = State.READY
            if error is None or error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:  # it was truncated before the flush
                self._touched.add_unscheduled(followed.key)
            else:
                self._storage_failed(followed, error)
        if not self._flush_count and self._touched.look is NOT_DUE:
            self._request_next()

    def _send(self) -> None:
        session_request = self._session.next_request()
        settings = self._settings
        request = FetchRequest(
            replica_state=ReplicaState(
                replica_id=self._follower.broker_id, replica_epoch=self._follower.broker_epoch()
            ),
            max_wait_ms=self._delays.wait_max_ms(settings.wait_max_ms),
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_max_bytes,
            session_id=session_request.session_id,
            session_epoch=session_request.epoch,
            topics=session_request.topics,
            forgotten_topics_data=session_request.forgotten,
        )
        self.state = checked_fetcher_edge(self.state, FETCH_IN_FLIGHT)
        self._connected().ask(request, FETCH_VERSIONS, self._answered)

    def _connected(self) -> LeaderConnection:
        if self._connection is None:
            self._connection = self._follower.connector.connect(self.source_id)
        return self._connection

    def _interrupt(self) -> None:
        """Abandon a parked request if a followed partition is not in it."""
        self._interrupt_timer = None
        now_ms = self._runtime.now_ms()
        if self.state is not FETCH_IN_FLIGHT or now_ms - self._interrupted_ms < self._settings.wait_max_ms:
            return
        if not any(self._is_left_waiting(followed) for followed in self._followed.values()):
            return
        self._interrupted_ms = now_ms
        self._disconnect()
        self.state = checked_fetcher_edge(self.state, IDLE)
        self._request_next()

    def _is_left_waiting(self, followed: FollowedPartition) -> bool:
        """Whether a partition could be fetched, but is not in the request in flight in its leader epoch."""
        requested = self._session.asked(followed.key)
        return followed.state is State.READY and (
            requested is None or requested.current_leader_epoch != followed.leader_epoch
        )

    # --- responses ----------------------------------------------------------------------------------------------------

    def _answered(self, answer: Message | ApiError) -> None:
        if isinstance(answer, ApiError):
            self._not_answered(answer)
            return
        self.state = checked_fetcher_edge(self.state, IDLE)
        try:
            self._use(cast(FetchResponse, answer))
        except ApiError as error:
            self._lost(str(error))
        except Exception as error:
            logger.exception("a fetch response could not be applied", leader=self.source_id)
            self._lost(str(error))
        else:
            self._request_next()

    def _not_answered(self, error: ApiError) -> None:
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            self._session.lost()
            self._back_off(self._settings.backoff_ms)
        else:
            self._lost(str(error), may_be_gone=error.code is ErrorCode.BROKER_NOT_AVAILABLE)

    def _use(self, response: FetchResponse) -> None:
        """Apply a response. Raises ApiError if a response to a full request is wrong."""
        was_full = self._session.is_full
        problem = self._session.answered(response)
        if problem and was_full:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, problem)
        if problem:
            logger.info("a fetch session is reopened", leader=self.source_id, reason=problem)
            return
        if self._is_unreachable:
            self._is_unreachable = False
            logger.warning("a leader answers again", leader=self.source_id)
            self._follower.on_back(self.source_id)
        with self._touched:
            for topic in response.responses:
                for data in topic.partitions:
                    self._use_partition(PartitionKey(topic.topic_id, data.partition_index), data)
        if self._truncations:
            self._truncate_some()

    def _use_partition(self, key: PartitionKey, data: PartitionData) -> None:
        followed, requested = self._followed.get(key), self._session.asked(key)
        if followed is None or requested is None:
            return
        log = followed.partition.log
        if log is None or followed.state is not State.READY or followed.phase is None:
            self._session.reset()
            self._touched.add(key)
            return
        self._execute(followed, log, next_step(data, requested, followed.leader_epoch, view_of(log)))

    def _truncate_some(self) -> None:
        """Truncate some logs in this turn of the loop: each takes several syncs, which are slow on a slow disk."""
        ends_at_ms = self._runtime.now_ms() + CUTS_MS
        with self._touched:
            for number in range(min(SLICE_PARTITIONS, len(self._truncations))):
                if number and self._runtime.now_ms() >= ends_at_ms:
                    break
                followed, step = self._truncations.popleft()
                log = followed.partition.log
                if self._followed.get(followed.key) is followed and followed.state is State.READY and log is not None:
                    self._execute(followed, log, step, is_cut_due=True)
        if self._truncations:
            if self.state is not TRUNCATING:
                self.state = checked_fetcher_edge(self.state, TRUNCATING)
            self._runtime.call_after_requests(self._truncate_more)
        elif self.state is TRUNCATING:
            self.state = checked_fetcher_edge(self.state, IDLE)

    def _truncate_more(self) -> None:
        self._truncate_some()
        self._request_next()

    def _execute(self, followed: FollowedPartition, log: PartitionLog, step: Step, *, is_cut_due: bool = False) -> None:
        """Apply a step to a partition; a truncation is left to `_truncate_some`, which sets `is_cut_due`.

        An error, whatever the leader has sent, affects only this partition.
        """
        self._touched.add(followed.key)
        try:
            match step:
                case Append():
                    if followed.append(step, log, self._runtime.wall_clock_ms()):
                        self._throttled.record(followed, len(step.records))
                        self._flush(followed, log)
                case Truncate() | StartOver() if not is_cut_due:
                    self._truncations.append((followed, step))
                case Truncate():
                    self._session.reset()
                    if not followed.truncate(step, log):
                        self._delay(followed, step.reason, is_expected=False)
                case StartOver():
                    followed.start_over(step, log)
                case AskOffsets():
                    self._leave_out(followed, State.ASKING)
                    self._out_of_range.append(followed)
                case Retry():
                    self._delay(followed, step.reason, is_expected=step.is_expected)
                case AwaitMetadata():
                    logger.info("a partition waits for a new leader epoch", partition=str(followed), reason=step.reason)
                    self._leave_out(followed, State.STOPPED)
                case Ignore():
                    self._session.reset()
        except ApiError as error:
            if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                self._storage_failed(followed, error)
            else:
                self._delay(followed, str(error), is_expected=False)
        except Exception as error:
            logger.exception("a leader's answer could not be applied", partition=str(followed), leader=self.source_id)
            self._delay(followed, str(error), is_expected=False)

    def _storage_failed(self, followed: FollowedPartition, error: ApiError) -> None:
        """Handle an error of the local disk: retry without room; otherwise the partition is or goes offline."""
        directory = self._logs.directory_of(followed.partition.name)
        is_usable = directory is not None and not directory.offline_reason
        if is_usable and (error.__cause__ is None or isinstance(error.__cause__, OutOfSpace)):
            # A full disk affects all partitions alike, and the log directory has logged it.
            self._delay(followed, str(error), is_expected=False, is_said=isinstance(error.__cause__, OutOfSpace))
            return
        logger.error("fetching a partition stopped: its log is offline", partition=str(followed), reason=str(error))
        self._leave_out(followed, State.STOPPED)

    # --- out of range -------------------------------------------------------------------------------------------------

    def _ask_offsets(self) -> None:
        partitions, self._out_of_range = self._out_of_range, []
        question = LeaderOffsets(self._connected(), self._follower.broker_id, partitions, self._offsets_found)
        self.state = checked_fetcher_edge(self.state, AskingOffsets(question))
        question.ask()

    def _offsets_found(self, found: Found | ApiError) -> None:
        if isinstance(found, ApiError):
            self._lost(str(found))
            return
        self.state = checked_fetcher_edge(self.state, IDLE)
        with self._touched:
            for followed, answer in found.items():
                log = followed.partition.log
                if self._resume(followed) and log is not None:
                    step = after_offsets(*answer, view_of(log)) if isinstance(answer, LeaderLog) else answer
                    self._execute(followed, log, step)
        if self._truncations:
            self._truncate_some()
        self._request_next()

    # --- pauses -------------------------------------------------------------------------------------------------------

    def _leave_out(self, followed: FollowedPartition, state: State) -> None:
        followed.state = state
        self._session.remove(followed.key)

    def _delay(self, followed: FollowedPartition, reason: str, *, is_expected: bool, is_said: bool = False) -> None:
        """Fetch a partition again after a pause; `is_said` if the reason was logged elsewhere."""
        if followed.said != reason and not is_said:
            followed.said = reason
            log = logger.info if is_expected else logger.warning
            log("fetching a partition is retried later", partition=str(followed), leader=self.source_id, reason=reason)
        self._leave_out(followed, State.DELAYED)
        self._delays.add(followed, is_expected=is_expected)

    def _resume(self, followed: FollowedPartition) -> bool:
        """Let a partition that was left out be fetched again; return whether it is still followed."""
        if self._followed.get(followed.key) is not followed:
            return False
        followed.state = State.READY
        self._touched.add(followed.key)
        return True

    def _lost(self, reason: str, *, may_be_gone: bool = False) -> None:
        """Connect again after a pause: the broker did not answer, or answered wrongly."""
        if self.state is STOPPED:
            return
        pause_ms = self._settings.backoff_ms
        if not self._is_unreachable:
            self._is_unreachable = True
            logger.warning("a leader does not answer; retrying", leader=self.source_id, reason=reason)
            if may_be_gone:
                self._follower.on_gone(self.source_id)
                pause_ms = min(RECONNECT_MS_MIN, pause_ms)  # to notice its return sooner
        self._truncations.clear()  # from a response with a later error; the next response has them again
        self._disconnect()
        self._back_off(pause_ms)

    def _back_off(self, pause_ms: float) -> None:
        timer = self._runtime.call_later(pause_ms, self._retry)
        self.state = checked_fetcher_edge(self.state, BackingOff(timer, self._runtime.now_ms()))

    def _retry_sooner(self, state: BackingOff) -> None:
        """Shorten the pause: a new leader epoch shows that the broker is alive."""
        waited_ms = self._runtime.now_ms() - state.failed_ms
        if waited_ms < self._settings.backoff_ms:
            state.timer.cancel()
            timer = self._runtime.call_later(max(0, RECONNECT_MS_MIN - waited_ms), self._retry)
            self.state = checked_fetcher_edge(self.state, BackingOff(timer, state.failed_ms))

    def _retry(self) -> None:
        self.state = checked_fetcher_edge(self.state, IDLE)
        self._request_next()

    def _disconnect(self) -> None:
        """Close the connection; a request in flight gets no response."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._session.lost()
        if isinstance(self.state, AskingOffsets):
            for followed in self.state.question.asked:
                self._resume(followed)
