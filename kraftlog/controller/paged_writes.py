"""The controller's work in pages: which job is next, how much is in flight, and how callers are answered (CT-12).

Jobs are done in the order in which they came, those in the background when there are no others. Between two pages other
operations are decided, and only as many pages are in flight as keep the disks busy: a leader with much to append must
still receive its followers' fetches. While this node cannot apply committed records, no pages are appended: they would
fill the memory, and a disk that may be nearly full, and the state of a fenced store must not become records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

import structlog

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.runtime import Runtime
from kraftbase.types import Offset
from kraftlog.controller.decisions import Decision
from kraftlog.controller.pending_operations import PendingOperation, PendingOperations, PreparedAppend
from kraftlog.controller.rules.pages import Pages
from kraftpb.v1.metadata_pb2 import MetadataRecord

SLICE_MS: Final = 5.0
"""How long operations that arrived together, or pages, hold the event loop before they yield."""

PAGES_IN_FLIGHT_MAX: Final = 10
"""At most this many pages are appended and not committed: enough to keep the disks busy and still serve followers."""

REFUSED_PAUSE_MS: Final = 100
"""How long pages, and a broker that is due to be fenced, wait when the log refuses appends for now, or nothing can be
applied."""

_REFUSED_FOR_NOW: Final = (ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.KAFKA_STORAGE_ERROR)
"""Too much is pending in the log, or there is no room on the disk."""

logger = structlog.get_logger(__name__)


class Appending(Protocol):
    """The part of the controller that pages use."""

    @property
    def is_active(self) -> bool:
        """Whether the controller may append."""
        ...

    @property
    def last_append(self) -> PreparedAppend | None:
        """The last append; None if everything is applied."""
        ...

    @property
    def unavailable_reason(self) -> str | None:
        """Why committed records cannot be applied here, None while they can."""
        ...

    @property
    def next_append_offset(self) -> Offset:
        """The log's end, with what is prepared."""
        ...

    def append(self, records: Sequence[MetadataRecord]) -> PreparedAppend:
        """Append records together. Raises ApiError."""
        ...

    def schedule(self) -> None:
        """Write what was appended."""
        ...

    def renounce(self) -> None:
        """Stop deciding: another node leads."""
        ...

    def resign(self) -> None:
        """Resign, so that another node can lead."""
        ...

    @property
    def on_bug(self) -> Callable[..., None]:
        """Called with a message when pages meet a bug of this program, while its exception is handled."""
        ...


class _Job(NamedTuple):
    """A job whose records are appended page by page."""

    pages: Pages
    on_done: Callable[[Offset], None]
    """Called with the log's end when the last page is appended."""
    operation: PendingOperation | None
    """The operation that is answered after the last page."""


class PagedWrites:
    """The jobs that the active controller still has to append in pages. Used on the event loop only."""

    def __init__(self, controller: Appending, pending: PendingOperations, runtime: Runtime) -> None:
        self._controller = controller
        self._pending = pending
        self._runtime = runtime
        self._jobs: deque[_Job] = deque()
        self._background: deque[_Job] = deque()
        """Jobs that wait until there are no others."""
        self._is_scheduled = False
        self._in_flight = 0

    def __bool__(self) -> bool:
        """Whether pages are still to be appended."""
        return bool(self._jobs or self._background)

    def begin(self, decision: Decision, operation: PendingOperation | None = None) -> None:
        """Append the pages of `decision`, if it has any, one after the other; then answer `operation`."""
        if decision.pages is None or not self._controller.is_active:
            return
        queue = self._background if decision.in_background else self._jobs
        queue.append(_Job(decision.pages, decision.on_done, operation))
        if not self._is_scheduled:
            self.run()

    def drop(self) -> None:
        """Forget all jobs: another controller finds and finishes the rest."""
        self._jobs.clear()
        self._background.clear()

    def run(self) -> None:
        """Append pages for a while."""
        self._is_scheduled = False
        slice_end_ms = self._runtime.now_ms() + SLICE_MS
        delay_ms = 0.0
        while self._can_run and not delay_ms and self._runtime.now_ms() < slice_end_ms:
            delay_ms = self.next_page()
        self._controller.schedule()
        if self._can_run:
            self._is_scheduled = True
            if delay_ms:
                self._runtime.call_later(delay_ms, self.run)
            else:
                self._runtime.call_soon(self.run)

    @property
    def _can_run(self) -> bool:
        """Whether a page is due, and not too many are in flight: otherwise it is appended when one is settled."""
        return bool(self) and self._controller.is_active and self._in_flight < PAGES_IN_FLIGHT_MAX

    # Consider a broker that leads 10,000 partitions and falls silent: 50 pages of 200. Ten are appended, in slices of 5
    # ms between which the loop serves followers and clients. Then ten are in flight, and the eleventh is appended when
    # the first is committed. A CreateTopics that arrives now is decided between two pages and appended after those ten;
    # it does not wait for the other forty. A client that has asked for the broker to be fenced is answered when the
    # last page is committed.
    #
    # A job may become impossible before it ends. Consider UnregisterBroker of broker 1, epoch 500. While its pages are
    # appended, broker 1 registers again, with epoch 900. The record that would remove the registration names epoch 500,
    # so it is not written. The answer is DUPLICATE_BROKER_REGISTRATION with the end offset of the last page: the pages
    # took effect.
    def next_page(self) -> float:
        """Append the next page of the first job; returns how long to wait before it is tried again, in milliseconds."""
        if self._controller.unavailable_reason is not None:
            return REFUSED_PAUSE_MS
        jobs = self._jobs or self._background
        job = jobs[0]
        try:
            records = job.pages.next_page()
        except ApiError as refusal:
            self._refused(jobs.popleft(), refusal)
            return 0.0
        except Exception:
            self._resign_over(job)
            return 0.0
        if records is None:
            self._done(jobs.popleft())
            return 0.0
        try:
            self._append(job, records)
        except ApiError as error:
            if error.code in _REFUSED_FOR_NOW:
                return REFUSED_PAUSE_MS
            if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                self._controller.renounce()
            else:
                self._resign_over(job)
        except Exception:
            self._resign_over(job)
        return 0.0

    def _append(self, job: _Job, records: Sequence[MetadataRecord]) -> None:
        """Append a page, if there is anything on it. Raises ApiError."""
        if records:
            prepared = self._controller.append(records)
            job.pages.appended()
            self._in_flight += 1
            prepared.on_settled = self._page_settled
            if job.operation is not None:
                job.operation.result.end_offset = prepared.end_offset

    def _page_settled(self) -> None:
        """There is room for another page. The log is calling back, so the page is appended in a later call."""
        self._in_flight -= 1
        if self._can_run and not self._is_scheduled:
            self._is_scheduled = True
            self._runtime.call_soon(self.run)

    def _done(self, job: _Job) -> None:
        job.on_done(self._controller.next_append_offset)
        if job.operation is not None:
            self._pending.pages_appended(job.operation, self._controller.last_append)

    def _refused(self, job: _Job, refusal: ApiError) -> None:
        """The job has become impossible: nothing of it is left to do."""
        logger.warning("an operation cannot be completed", reason=str(refusal))
        job.on_done(self._controller.next_append_offset)
        if job.operation is not None:
            self._pending.pages_failed(job.operation, refusal)

    def _resign_over(self, job: _Job) -> None:
        """A bug: this controller does not retry the rest of the job; the next controller finishes it."""
        self._controller.on_bug("pages failed because of a bug; the next controller finishes the rest")
        message = "the controller failed in the middle of this operation; see its log, and check before trying again"
        if job.operation is not None:
            self._pending.pages_failed(job.operation, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, message))
        self._controller.resign()
