"""Fetches the partitions that one broker leads: request, answer, appends, flush, and the next request (DB-37).

- One request is in flight at most. It claims only what is on this broker's disk: after an answer the next request waits
  until what was appended is flushed, by one group commit for all logs of a directory, if the topic has
  `flush.before.ack`. So acks=all means: on the disks of all in sync.
- A partition whose state has changed is touched, and only what is touched is looked at before a request: hundreds of
  partitions without news cost nothing.
- Trouble with one partition delays or stops that one (DB-36), trouble with the broker all that are fetched from it.
- A request is parked at the leader for up to `replica.fetch.wait.max.ms`. A partition that comes meanwhile would have
  to wait as long, and with it every acks=all of its new leader. So the request is given up, at most once in that time.

What it does at a time is its state (`kraftlog.replicas.replication.fetcher_states`). Whatever ends a state calls
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
    check_fetcher_edge,
)
from kraftlog.replicas.replication.followed_partition import FollowedPartition, State, view_of
from kraftlog.replicas.replication.follower import Follower
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
from kraftlog.replicas.replication.throttled_fetches import ThrottledFetches
from kraftlog.replicas.replication.touched_partitions import Look, TouchedPartitions
from kraftlog.storage.partition_log import PartitionLog
from kraftlog.storage.slices import SLICE_PARTITIONS

logger = structlog.get_logger(__name__)

FETCH_VERSIONS: Final = Versions(15, 18)
"""The first that says which follower asks as it is said here, up to the last whose meaning is known here."""

INTERRUPT_AFTER_MS: Final = 20
"""A request that is not answered for so long is parked, as answers are on their way sooner."""

CUTS_MS: Final = 5.0
"""After so long the loop turns between two cuts."""

RECONNECT_MS_MIN: Final = 100
"""After a failure a new leader epoch has its broker tried again at once, but not more often than this."""


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
        self._throttled = ThrottledFetches(
            follower.broker_id, follower.throttle, follower.quota, follower.runtime, self._resume
        )
        self._delays = Delays(follower.runtime, follower.settings.backoff_ms, self._resume)
        self._connection: LeaderConnection | None = None
        self.state: FetcherState = IDLE
        self._flush_count = 0
        """How many logs are being flushed before the next request."""
        self._truncations: deque[tuple[FollowedPartition, Step]] = deque()
        """Logs that are cut, or start over, before the next request."""
        self._out_of_range: list[FollowedPartition] = []
        """What the leader is asked about before the next request."""
        self._interrupted_ms = follower.runtime.now_ms() - follower.settings.wait_max_ms
        self._interrupt_timer: Timer | None = None
        self._is_unreachable = False

    def __len__(self) -> int:
        """How many partitions it follows."""
        return len(self._followed)

    def __iter__(self) -> Iterator[FollowedPartition]:
        return iter(self._followed.values())

    # --- what is followed ---------------------------------------------------------------------------------------------

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
        """Follow it no more; nothing happens if it is not followed."""
        followed = self._followed.pop(key, None)
        if followed is not None:
            self._delays.forget(followed)
            self._throttled.forget(followed)
            self._session.forget(key)

    def stop(self) -> None:
        """Follow nothing any more."""
        if self.state is STOPPED:
            return
        self._followed.clear()
        self._truncations.clear()
        self._disconnect()
        if isinstance(self.state, BackingOff):
            self.state.timer.cancel()
        self._enter(STOPPED)
        if self._interrupt_timer is not None:
            self._interrupt_timer.cancel()
        self._delays.stop()
        self._throttled.stop()

    def _enter(self, state: FetcherState) -> None:
        check_fetcher_edge(self.state, state)
        self.state = state

    # --- requests -----------------------------------------------------------------------------------------------------

    def _request_next(self) -> None:
        """Look at what is touched, and send the next request unless something comes before; its end calls this."""
        if self.state is STOPPED:
            return
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
            self._enter(IDLE)
        if self.state is not IDLE:
            return
        if self._flush_count:
            self._enter(WAITING_FOR_FLUSH)
        elif self._out_of_range:
            self._ask_offsets()
        else:
            self._fetch()

    def _fetch(self) -> None:
        for followed in self._throttled.to_leave_out():
            self._leave_out(followed, State.THROTTLED)
        if len(self._session):
            self._send()

    def _prepare(self, followed: FollowedPartition) -> None:
        """Have a partition in the next request, if it may be."""
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
            self._throttled.look_at(followed)
            self._session.want(followed.key, followed.position(log, self._settings.max_bytes))

    def _flush(self, followed: FollowedPartition, log: PartitionLog) -> None:
        """Have the log flushed as its topic asks for; the partition is touched when it is."""
        followed.state = State.FLUSHING
        self._flush_count += 1
        log.acknowledge(log.log_end_offset, partial(self._flushed, followed))

    def _flushed(self, followed: FollowedPartition, error: ApiError | None) -> None:
        self._flush_count -= 1
        if self._followed.get(followed.key) is followed and followed.state is State.FLUSHING:
            followed.state = State.READY
            if error is None or error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:  # it was cut before it was flushed
                self._touched.add_unscheduled(followed.key)
            else:
                self._storage_failed(followed, error)
        if not self._flush_count and self._touched.look is Look.NOT_DUE:
            self._request_next()

    def _send(self) -> None:
        asked = self._session.next_request()
        settings = self._settings
        request = FetchRequest(
            replica_state=ReplicaState(
                replica_id=self._follower.broker_id, replica_epoch=self._follower.broker_epoch()
            ),
            max_wait_ms=self._delays.wait_max_ms(settings.wait_max_ms),
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_max_bytes,
            session_id=asked.session_id,
            session_epoch=asked.epoch,
            topics=asked.topics,
            forgotten_topics_data=asked.forgotten,
        )
        self._enter(FETCH_IN_FLIGHT)
        self._connected().ask(request, FETCH_VERSIONS, self._answered)

    def _connected(self) -> LeaderConnection:
        if self._connection is None:
            self._connection = self._follower.connector.connect(self.source_id)
        return self._connection

    def _interrupt(self) -> None:
        """Give up the request that is parked, if a partition has come that is not in it."""
        self._interrupt_timer = None
        now_ms = self._runtime.now_ms()
        if self.state is not FETCH_IN_FLIGHT or now_ms - self._interrupted_ms < self._settings.wait_max_ms:
            return
        if not any(self._is_left_waiting(followed) for followed in self._followed.values()):
            return
        self._interrupted_ms = now_ms
        self._disconnect()
        self._enter(IDLE)
        self._request_next()

    def _is_left_waiting(self, followed: FollowedPartition) -> bool:
        """Whether a partition is not in the request that is in flight, in its leader epoch, and could be."""
        asked = self._session.asked(followed.key)
        return followed.state is State.READY and (asked is None or asked.current_leader_epoch != followed.leader_epoch)

    # --- answers ------------------------------------------------------------------------------------------------------

    def _answered(self, answer: Message | ApiError) -> None:
        if isinstance(answer, ApiError):
            if answer.code is ErrorCode.UNSUPPORTED_VERSION:
                self._session.lost()
                self._back_off(self._settings.backoff_ms)
            else:
                self._lost(str(answer), may_be_gone=answer.code is ErrorCode.BROKER_NOT_AVAILABLE)
            return
        self._enter(IDLE)
        try:
            self._use(cast(FetchResponse, answer))
        except ApiError as error:
            self._lost(str(error))
        except Exception as error:
            logger.exception("an answer was not used", leader=self.source_id)
            self._lost(str(error))
        else:
            self._request_next()

    def _use(self, response: FetchResponse) -> None:
        """Take an answer. Raises ApiError if it contradicts a request that was for everything."""
        was_full = self._session.is_full
        problem = self._session.answered(response)
        if problem and was_full:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, problem)
        if problem:
            logger.info("a fetch session begins anew", leader=self.source_id, reason=problem)
            return
        if self._is_unreachable:
            self._is_unreachable = False
            logger.warning("a leader answers again", leader=self.source_id)
            self._follower.on_back(self.source_id)
        with self._touched:
            for topic in response.responses:
                for data in topic.partitions:
                    self._take(PartitionKey(topic.topic_id, data.partition_index), data)
        if self._truncations:
            self._truncate_some()

    def _take(self, key: PartitionKey, data: PartitionData) -> None:
        followed, asked = self._followed.get(key), self._session.asked(key)
        if followed is None or asked is None:
            return
        log = followed.partition.log
        if log is None or followed.state is not State.READY or followed.phase is None:
            self._session.begin_anew()
            self._touched.add(key)
            return
        self._carry_out(followed, log, next_step(data, asked, followed.leader_epoch, view_of(log)))

    def _truncate_some(self) -> None:
        """Cut logs, some of them in a turn of the loop: each costs several syncs, which a slow disk takes long for."""
        ends_at_ms = self._runtime.now_ms() + CUTS_MS
        with self._touched:
            for number in range(min(SLICE_PARTITIONS, len(self._truncations))):
                if number and self._runtime.now_ms() >= ends_at_ms:
                    break
                followed, step = self._truncations.popleft()
                log = followed.partition.log
                if self._followed.get(followed.key) is followed and followed.state is State.READY and log is not None:
                    self._carry_out(followed, log, step, is_cut_due=True)
        if self._truncations:
            if self.state is not TRUNCATING:
                self._enter(TRUNCATING)
            self._runtime.call_after_requests(self._truncate_more)
        elif self.state is TRUNCATING:
            self._enter(IDLE)

    def _truncate_more(self) -> None:
        self._truncate_some()
        self._request_next()

    def _carry_out(
        self, followed: FollowedPartition, log: PartitionLog, step: Step, *, is_cut_due: bool = False
    ) -> None:
        """Do what a partition needs; a cut is done by `_truncate_some`.

        Nothing that a leader says ends more than the fetching of one partition.
        """
        self._touched.add(followed.key)
        try:
            match step:
                case Append():
                    if followed.append(step, log, self._runtime.wall_clock_ms()):
                        self._throttled.fetched(followed, len(step.records))
                        self._flush(followed, log)
                case Truncate() | StartOver() if not is_cut_due:
                    self._truncations.append((followed, step))
                case Truncate():
                    self._session.begin_anew()
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
                    logger.info("a partition is not fetched", partition=str(followed), reason=step.reason)
                    self._leave_out(followed, State.STOPPED)
                case Ignore():
                    self._session.begin_anew()
        except ApiError as error:
            if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                self._storage_failed(followed, error)
            else:
                self._delay(followed, str(error), is_expected=False)
        except Exception as error:
            logger.exception("a leader's answer was not carried out", partition=str(followed), leader=self.source_id)
            self._delay(followed, str(error), is_expected=False)

    def _storage_failed(self, followed: FollowedPartition, error: ApiError) -> None:
        """Our own disk: without room it is tried again, else the partition is offline, or will be in a moment."""
        directory = self._logs.directory_of(followed.partition.name)
        is_usable = directory is not None and not directory.offline_reason
        if is_usable and (error.__cause__ is None or isinstance(error.__cause__, OutOfSpace)):
            # A full disk is the same for all partitions, and the log directory has said it.
            self._delay(followed, str(error), is_expected=False, is_said=isinstance(error.__cause__, OutOfSpace))
            return
        logger.error("a partition is not fetched any more", partition=str(followed), reason=str(error))
        self._leave_out(followed, State.STOPPED)

    # --- out of range -------------------------------------------------------------------------------------------------

    def _ask_offsets(self) -> None:
        asked, self._out_of_range = self._out_of_range, []
        question = LeaderOffsets(self._connected(), self._follower.broker_id, asked, self._offsets_found)
        self._enter(AskingOffsets(question))
        question.ask()

    def _offsets_found(self, found: Found | ApiError) -> None:
        if isinstance(found, ApiError):
            self._lost(str(found))
            return
        self._enter(IDLE)
        with self._touched:
            for followed, answer in found.items():
                log = followed.partition.log
                if self._resume(followed) and log is not None:
                    step = after_offsets(*answer, view_of(log)) if isinstance(answer, LeaderLog) else answer
                    self._carry_out(followed, log, step)
        if self._truncations:
            self._truncate_some()
        self._request_next()

    # --- pauses -------------------------------------------------------------------------------------------------------

    def _leave_out(self, followed: FollowedPartition, state: State) -> None:
        followed.state = state
        self._session.forget(followed.key)

    def _delay(self, followed: FollowedPartition, reason: str, *, is_expected: bool, is_said: bool = False) -> None:
        """Fetch a partition again after a pause; `is_said` if the reason was logged elsewhere."""
        if followed.said != reason and not is_said:
            followed.said = reason
            log = logger.info if is_expected else logger.warning
            log("a partition is fetched again later", partition=str(followed), leader=self.source_id, reason=reason)
        self._leave_out(followed, State.DELAYED)
        self._delays.add(followed, is_expected=is_expected)

    def _resume(self, followed: FollowedPartition) -> bool:
        """A partition that was left out may be fetched again; returns whether it is still followed."""
        if self._followed.get(followed.key) is not followed:
            return False
        followed.state = State.READY
        self._touched.add(followed.key)
        return True

    def _lost(self, reason: str, *, may_be_gone: bool = False) -> None:
        """The broker does not answer, or not as it must: connect again after a pause."""
        if self.state is STOPPED:
            return
        pause_ms = self._settings.backoff_ms
        if not self._is_unreachable:
            self._is_unreachable = True
            logger.warning("a leader does not answer; trying again", leader=self.source_id, reason=reason)
            if may_be_gone:
                self._follower.on_gone(self.source_id)
                pause_ms = min(RECONNECT_MS_MIN, pause_ms)  # that it is there is known the sooner
        self._truncations.clear()  # of an answer that fails behind them; the next answer says the same
        self._disconnect()
        self._back_off(pause_ms)

    def _back_off(self, pause_ms: float) -> None:
        timer = self._runtime.call_later(pause_ms, self._retry)
        self._enter(BackingOff(timer, self._runtime.now_ms()))

    def _retry_sooner(self, state: BackingOff) -> None:
        """A leader epoch has begun, so the broker lives."""
        waited_ms = self._runtime.now_ms() - state.failed_ms
        if waited_ms < self._settings.backoff_ms:
            state.timer.cancel()
            timer = self._runtime.call_later(max(0, RECONNECT_MS_MIN - waited_ms), self._retry)
            self._enter(BackingOff(timer, state.failed_ms))

    def _retry(self) -> None:
        self._enter(IDLE)
        self._request_next()

    def _disconnect(self) -> None:
        """Close the connection; there is no answer to what is in flight."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._session.lost()
        if isinstance(self.state, AskingOffsets):
            for followed in self.state.question.asked:
                self._resume(followed)
