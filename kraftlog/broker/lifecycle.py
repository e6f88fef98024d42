"""A broker's life with the controller: it registers (CT-33), sends heartbeats, is fenced, unfenced, shut down (CT-35).

    async with BrokerLifecycle(client, broker_id=1, listeners=[("PLAINTEXT", "localhost", 9092)]) as life:
        await life.unfenced()

Registration is repeated until the controller accepts it. A broker whose epoch is no longer the present one, because its
session expired and another incarnation has registered, registers again. On leaving the context it does a controlled
shutdown: its partitions get other leaders before it stops, as far as there are any. It stays with the cluster that
accepted it first. With a directory of its own it knows that cluster when it starts again, and whether its shutdown was
clean (kraftlog.broker.directory).
"""

from __future__ import annotations

import asyncio
import math
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Final

import structlog

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.files.posix import PosixFileSystem
from kraftbase.uuids import random_uuid, uuid_from_text, uuid_to_text
from kraftlog.admin.client.client import AdminClient
from kraftlog.broker.directory import BrokerDirectory
from kraftlog.broker.registered_epochs import RegisteredEpochs
from kraftpb.v1.admin_pb2 import LogDirSpace
from statemachine.query.descriptions import BrokerListener

HEARTBEAT_INTERVAL_MS: Final = 2_000
"""broker.heartbeat.interval.ms."""

RETRY_MS: Final = 200
"""How long to wait after a failure, and between heartbeats while the broker waits to be unfenced or to go."""

REQUEST_TIMEOUT_MS: Final = 4_500
"""How long one heartbeat or registration may take before it is sent again, to the leader of that time: half a session,
as in Kafka. Otherwise it would wait at a hung leader until the next leader considers the broker dead."""

OFFSET_READ_TIMEOUT_MS: Final = 1_000
OFFSET_TIMEOUT_MS: Final = 1_500
"""How long a heartbeat waits to learn what the broker has applied: from a node, and from the broker itself. After that
it reports the last known offset: a heartbeat in time matters more than an exact one."""

SHUTDOWN_TIMEOUT_MS: Final = 10_000

PORT_BASE: Final = 9_092
"""Where `living_brokers` report that they listen: one port each, above this one."""

_NAMESPACE: Final = uuid.UUID("6b7261d0-6c6f-5067-8469-726563746f72")
"""Namespace for the ids of the log directories of brokers that keep no data."""

_REGISTER_ANEW: Final = (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED)

REGISTERED: Final = "the broker is registered"
CONTROLLER_LOST: Final = (
    "no controller answers: this broker goes on with what it leads, but topics, leaders and ISRs cannot change until a"
    " majority of the voters is there"
)
CONTROLLER_BACK: Final = "the controller answers again"
CONTROLLER_LOST_SECONDS: Final = 5.0
"""The log line of each registration."""

logger = structlog.get_logger(__name__)


class BrokerLifecycle:
    """One broker, for one event loop."""

    def __init__(
        self,
        client: AdminClient,
        *,
        broker_id: int,
        listeners: Sequence[BrokerListener | tuple[str, str, int]],
        rack: str | None = None,
        log_dirs: Sequence[str] | None = None,
        heartbeat_interval_ms: int = HEARTBEAT_INTERVAL_MS,
        metadata_offset: Callable[[], Awaitable[int]] | None = None,
        data_dir: str | None = None,
        directory: BrokerDirectory | None = None,
        offline_log_dirs: Callable[[], Sequence[str]] = tuple,
        log_dir_space: Callable[[], Sequence[LogDirSpace]] = tuple,
        tell: Callable[[str], None] | None = None,
        epochs: RegisteredEpochs | None = None,
    ) -> None:
        """`metadata_offset` returns the end offset of the metadata that the broker has applied; without one, the broker
        reports that of the node that answers the client's reads. `log_dirs` are the ids of its log directories; without
        them it has one, whose id is the same at every start of a broker with that id: its partitions are assigned to
        that directory, and under another it could not lead them. In `data_dir` it keeps its cluster and how it was shut
        down; without one each start counts as one after a crash. `directory` is the same, opened and claimed by the
        caller. `offline_log_dirs` returns the ids of the log directories that have failed, `log_dir_space` the room in
        the others. `tell` is called with a message when the broker has to wait for longer than a moment, and when the
        wait has ended. `epochs` has the epoch of its last registration in each of `log_dirs` (CT-38). The client stays
        the caller's."""
        self._client = client
        self.broker_id = broker_id
        self._listeners = listeners
        self._rack = rack
        self._log_dirs = log_dirs or [uuid_to_text(uuid.uuid5(_NAMESPACE, str(broker_id)))]
        self._heartbeat_interval_ms = heartbeat_interval_ms
        self._metadata_offset = metadata_offset or partial(client.applied_end_offset, timeout_ms=OFFSET_READ_TIMEOUT_MS)
        self._known_metadata_offset = 0
        self._data_dir = data_dir
        self._tell = tell or (lambda _: None)
        self._incarnation_id = uuid_to_text(random_uuid())
        self._directory = directory
        self._offline_log_dirs = offline_log_dirs
        self._log_dir_space = log_dir_space
        self._epochs = epochs
        self._cluster_id: str | None = None
        self._previous_broker_epoch: int | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_registered = asyncio.Event()
        self._is_unfenced = asyncio.Event()
        self._may_go = asyncio.Event()
        self._wakes = asyncio.Event()
        self._hurried_at = -math.inf
        """When a heartbeat was tried again at once, by the clock of the event loop."""
        self._is_leaving = False
        self._was_registered = False
        self._waits_for_another = False
        self._waits_for_nodes = False
        self._unanswered_since: float | None = None
        """When the controller first gave no answer after its last one, by the clock of the event loop."""
        self._has_lost_controller = False
        self.broker_epoch: int = -1
        """The epoch of its registration; -1 while it has none."""
        self.last_broker_epoch: int = -1
        """The epoch of its last registration; -1 before the first. Its fetches have this one while it registers again:
        with -1 a leader could not tell them from those of its next process (KIP-903)."""
        self.is_fenced = True
        """The state in the last heartbeat's answer."""

    def start(self) -> None:
        """Register as a new incarnation, and send heartbeats from now on.

        Raises StorageError, and DirectoryError if another broker owns the directory or a process uses it.
        """
        if self._data_dir is not None:
            self._directory = BrokerDirectory.open(PosixFileSystem(), self._data_dir, self.broker_id)
        if self._directory is not None:
            self._cluster_id = self._directory.cluster_id
            self._previous_broker_epoch = self._directory.clean_epoch
            # The cluster is there, as it accepted the broker once: after a power cut it may be up later.
            self._was_registered = self._cluster_id is not None
        adopted = None if self._directory is None else self._directory.adopted_incarnation
        self._incarnation_id = uuid_to_text(adopted or random_uuid())
        self.broker_epoch = -1
        self._known_metadata_offset = 0
        self._is_leaving = self._waits_for_another = self._waits_for_nodes = False
        for event in (self._is_registered, self._is_unfenced, self._may_go, self._wakes):
            event.clear()
        # At once, since the controller may wonder whether this process has ended (CT-65).
        self._client.when_disconnected(self.tell_now)
        self._task = asyncio.create_task(self._live())

    async def __aenter__(self) -> BrokerLifecycle:
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.shut_down()
        await self.stop()

    async def registered(self) -> None:
        """Wait until the controller has accepted its registration."""
        await self._wait_for(self._is_registered)

    async def unfenced(self) -> None:
        """Wait until the controller has unfenced it."""
        await self._wait_for(self._is_unfenced)

    async def _wait_for(self, event: asyncio.Event) -> None:
        task = self._task
        if task is None:
            raise RuntimeError("the broker has not been started: use it as a context")
        waiting = asyncio.create_task(event.wait())
        try:
            await asyncio.wait((waiting, task), return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                await asyncio.shield(task)  # raises what ended it
        finally:
            waiting.cancel()

    async def ended(self) -> None:
        """Wait until it sends no more heartbeats; raises what ended it."""
        if self._task is not None:
            await asyncio.shield(self._task)

    def tell_now(self) -> None:
        """Send the next heartbeat at once: something that it tells has changed."""
        self._wakes.set()

    async def shut_down(self, timeout_ms: int = SHUTDOWN_TIMEOUT_MS) -> bool:
        """Ask to shut down, until the controller allows it; returns whether it did in time. Without a registration the
        broker just stops."""
        self._is_leaving = True
        self._wakes.set()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._may_go.wait()
        except TimeoutError:
            logger.warning("the controller did not allow the shutdown in time", broker_id=self.broker_id)
            return False
        return True

    async def stop(self, *, is_clean: bool = True) -> None:
        """Send nothing more, like a process that dies, unless it was asked to shut down before. Raises StorageError.

        Without `is_clean` the next start counts as one after a crash: the broker's logs could not be closed.
        """
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self._directory is not None:
            self._directory.close(self.clean_epoch if is_clean else None)

    @property
    def clean_epoch(self) -> int | None:
        """What the next start names if all of this broker's logs can be closed; None if it was not asked to shut down.

        A broker that has not registered has changed nothing: the epoch that it found is good for its next start.
        """
        return self.broker_epoch if self._is_leaving and self.broker_epoch >= 0 else self._previous_broker_epoch

    # --- its life -----------------------------------------------------------------------------------------------------

    async def _live(self) -> None:
        while not self._may_go.is_set():
            try:
                if self.broker_epoch < 0 and self._is_leaving:
                    self._may_go.set()  # it has no leadership to hand over
                    break
                if self.broker_epoch < 0:
                    await self._register()
                await self._heartbeat()
            except ApiError as error:
                if error.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
                    self._wait_for_another()
                if error.code in _REGISTER_ANEW:
                    self.broker_epoch = -1
                    self._incarnation_id = uuid_to_text(random_uuid())
                elif not _is_passing(error, was_registered=self._was_registered):
                    raise
                if error.code is ErrorCode.BROKER_NOT_AVAILABLE and not self._is_registered.is_set():
                    self._wait_for_nodes(error)
                logger.info("no answer to the broker", broker_id=self.broker_id, reason=str(error))
                self._note_no_answer(error)
                await self._pause_before_retry()
                continue
            await self._pause()

    async def _register(self) -> None:
        if self._cluster_id is None:
            self._cluster_id = await self._client.cluster_id()
        if self._directory is not None:
            self._directory.claim(self._cluster_id, uuid_from_text(self._log_dirs[0]))
        answer = await self._client.registration(
            self.broker_id,
            self._listeners,
            rack=self._rack,
            cluster_id=self._cluster_id,
            incarnation_id=self._incarnation_id,
            log_dirs=self._log_dirs,
            previous_broker_epoch=self._previous_broker_epoch,
            log_dir_epochs=() if self._epochs is None else self._epochs.named(),
            timeout_ms=REQUEST_TIMEOUT_MS,
        )
        if self._epochs is not None:  # before any heartbeat: what is acknowledged once it is unfenced is of this epoch
            await self._epochs.note(answer.broker_epoch, answer.older_log_dirs)
        if self._directory is not None:
            self._directory.forget_adoption()
        self.broker_epoch = answer.broker_epoch
        self.last_broker_epoch = self.broker_epoch
        self._was_registered = True
        logger.info(REGISTERED, broker_id=self.broker_id, epoch=self.broker_epoch)
        self._is_registered.set()
        self._previous_broker_epoch = None
        if self._waits_for_another:
            self._waits_for_another = False
            self._tell(f"The other incarnation's session has expired: broker {self.broker_id} is registered.")

    def _wait_for_another(self) -> None:
        """Report once that it waits for another incarnation's session to expire, and what the user can do."""
        if not self._waits_for_another:
            self._waits_for_another = True
            self._tell(
                f"Broker {self.broker_id} waits: another incarnation of it is alive, or was a moment ago. If that one"
                " still runs, stop it, or take another id; when its session expires this one registers by itself."
            )

    def _wait_for_nodes(self, error: ApiError) -> None:
        """Report once that it waits for the cluster's nodes."""
        if not self._waits_for_nodes:
            self._waits_for_nodes = True
            self._tell(f"Broker {self.broker_id} waits for its cluster: {error}. It registers when a node answers.")

    async def _heartbeat(self) -> None:
        answer = await self._client.broker_heartbeat(
            self.broker_id,
            self.broker_epoch,
            await self._applied_metadata(),
            want_shut_down=self._is_leaving,
            offline_log_dirs=self._offline_log_dirs(),
            log_dir_space=self._log_dir_space(),
            timeout_ms=REQUEST_TIMEOUT_MS,
        )
        self._note_answer()
        self.is_fenced = answer.is_fenced
        (self._is_unfenced.clear if answer.is_fenced else self._is_unfenced.set)()
        if answer.should_shut_down:
            self._may_go.set()

    def _note_no_answer(self, error: ApiError) -> None:
        """Say once that a registered broker has lost the controller: longer than a change of controllers takes."""
        now_seconds = asyncio.get_running_loop().time()
        if self._unanswered_since is None:
            self._unanswered_since = now_seconds
        is_lost = self._was_registered and now_seconds - self._unanswered_since >= CONTROLLER_LOST_SECONDS
        if is_lost and not self._has_lost_controller:
            self._has_lost_controller = True
            logger.warning(CONTROLLER_LOST, broker_id=self.broker_id, reason=str(error))

    def _note_answer(self) -> None:
        self._unanswered_since = None
        if self._has_lost_controller:
            self._has_lost_controller = False
            logger.warning(CONTROLLER_BACK, broker_id=self.broker_id)

    async def _applied_metadata(self) -> int:
        """The end offset of the metadata that the broker has applied; the last known if it cannot be learned now."""
        try:
            async with asyncio.timeout(OFFSET_TIMEOUT_MS / 1000):
                self._known_metadata_offset = await self._metadata_offset()
        except TimeoutError:
            logger.info("the applied offset was not known in time", broker_id=self.broker_id)
        except ApiError as error:
            if not _is_passing(error, was_registered=True):
                raise
            logger.info("the applied offset could not be read", broker_id=self.broker_id, reason=str(error))
        return self._known_metadata_offset

    async def _pause_before_retry(self) -> None:
        """Wait a while; not if the connection has just been lost, and this was not so a moment ago either.

        The controller may already ask itself whether this process has ended: it gives a sign of life 100 ms (CT-65).
        """
        clock = asyncio.get_running_loop().time
        try:
            async with asyncio.timeout(RETRY_MS / 1000):
                await self._wakes.wait()
        except TimeoutError:
            return
        self._wakes.clear()
        await asyncio.sleep(self._hurried_at + RETRY_MS / 1000 - clock())
        self._hurried_at = clock()

    async def _pause(self) -> None:
        """Wait for the next heartbeat: less long while a state change is pending."""
        is_waiting = self.is_fenced or self._is_leaving
        pause_ms = min(RETRY_MS, self._heartbeat_interval_ms) if is_waiting else self._heartbeat_interval_ms
        try:
            async with asyncio.timeout(pause_ms / 1000):
                await self._wakes.wait()
            self._wakes.clear()
        except TimeoutError:
            pass


@asynccontextmanager
async def living_brokers(client: AdminClient, broker_ids: Iterable[int]) -> AsyncIterator[list[BrokerLifecycle]]:
    """Brokers on this machine that are unfenced when the block begins, and stop sending heartbeats when it ends."""
    lives = [
        BrokerLifecycle(client, broker_id=broker_id, listeners=[("PLAINTEXT", "localhost", PORT_BASE + broker_id)])
        for broker_id in broker_ids
    ]
    try:
        for life in lives:
            life.start()
        for life in lives:
            await life.unfenced()
        yield lives
    finally:
        for life in lives:
            await life.stop()


def _is_passing(error: ApiError, *, was_registered: bool) -> bool:
    """Whether another attempt may succeed: there is no controller now, or another incarnation still has a session.

    If no node answers at all, the address is wrong before the broker has registered, and all nodes are down after that.
    A node's unexpected error is that node's own once the broker is registered: another one may lead soon.
    """
    if error.code in (ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.UNKNOWN_SERVER_ERROR):
        return was_registered
    return error.code in (
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    )
