"""A broker's life with the controller: it registers (CT-33), sends heartbeats, is fenced, unfenced, shut down (CT-35).

    async with BrokerLifecycle(client, broker_id=1, listeners=[("PLAINTEXT", "localhost", 9092)]) as life:
        await life.unfenced()

It is `kraftlog.broker.shell.membership` on an event loop. On leaving the context it does a controlled shutdown: its
partitions get other leaders before it stops, as far as there are any.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Final
from uuid import UUID

import structlog

from kraftbase.errors import ApiError
from kraftbase.files.posix import PosixFileSystem
from kraftbase.ids import id_to_bytes
from kraftbase.runtime import AsyncioRuntime
from kraftbase.uuids import random_uuid, uuid_from_text, uuid_to_text
from kraftlog.admin.client.client import AdminClient
from kraftlog.broker.awaited_answers import AwaitedAnswers
from kraftlog.broker.controller_link import ControllerLink
from kraftlog.broker.directory import BrokerDirectory
from kraftlog.broker.registered_epochs import RegisteredEpochs
from kraftlog.broker.shell.membership import (
    HEARTBEAT_INTERVAL_MS,
    SHUTDOWN_TIMEOUT_MS,
    Candidacy,
    Membership,
    Pace,
    is_passing,
)
from kraftlog.broker.shell.membership_states import NO_BROKER_EPOCH
from kraftlog.broker.shell.ports import OnAnswer
from kraftlog.telemetry.observer import Decision
from kraftpb.v1.admin_pb2 import LogDirSpace
from statemachine.query.descriptions import BrokerListener

OFFSET_READ_TIMEOUT_MS: Final = 1_000
OFFSET_TIMEOUT_MS: Final = 1_500
"""How long a heartbeat waits to learn what the broker has applied: from a node, and from the broker itself. After that
it reports the last known offset: a heartbeat in time matters more than an exact one."""

PORT_BASE: Final = 9_092
"""Where `living_brokers` report that they listen: one port each, above this one."""

_NAMESPACE: Final = uuid.UUID("6b7261d0-6c6f-5067-8469-726563746f72")
"""Namespace for the ids of the log directories of brokers that keep no data."""

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
        ids = log_dirs or [uuid_to_text(uuid.uuid5(_NAMESPACE, str(broker_id)))]
        self._candidacy = Candidacy(
            broker_id, [BrokerListener(*at) for at in listeners], rack, [uuid_from_text(of) for of in ids]
        )
        self._pace = Pace(heartbeat_interval_ms)
        self._metadata_offset = metadata_offset or partial(client.applied_end_offset, timeout_ms=OFFSET_READ_TIMEOUT_MS)
        self._known_metadata_offset = 0
        self._data_dir = data_dir
        self._directory = directory
        self._offline_log_dirs, self._log_dir_space = offline_log_dirs, log_dir_space
        self._tell = tell
        self._epochs = epochs
        self._membership: Membership | None = None
        self._link: ControllerLink | None = None
        self._offsets: AwaitedAnswers | None = None
        self._ended: asyncio.Future[None] | None = None
        self._is_registered = asyncio.Event()
        self._is_unfenced = asyncio.Event()
        self._may_go = asyncio.Event()
        self.last_broker_epoch = NO_BROKER_EPOCH
        """The epoch of its last registration; -1 before the first."""
        self.is_fenced = True
        """The state in the last heartbeat's answer."""

    def start(self) -> None:
        """Register as a new incarnation, and send heartbeats from now on.

        Raises StorageError, and DirectoryError if another broker owns the directory or a process uses it.
        """
        if self._data_dir is not None:
            self._directory = BrokerDirectory.open(PosixFileSystem(), self._data_dir, self.broker_id)
        self._known_metadata_offset = 0
        for event in (self._is_registered, self._is_unfenced, self._may_go):
            event.clear()
        self._ended = asyncio.get_running_loop().create_future()
        self._ended.add_done_callback(_look_at)
        self._link = ControllerLink(self._client, self.membership_ended)
        self._offsets = AwaitedAnswers(self.membership_ended)
        self._membership = Membership(
            candidacy=self._candidacy,
            pace=self._pace,
            directory=self._directory,
            epochs=self._epochs,
            controller=self._link,
            runtime=AsyncioRuntime(),
            host=self,
        )
        # At once, since the controller may wonder whether this process has ended (CT-65).
        self._client.when_disconnected(self.tell_now)
        self._membership.start()

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
        ended = self._ended
        if ended is None:
            raise RuntimeError("the broker has not been started: use it as a context")
        waiting = asyncio.create_task(event.wait())
        try:
            await asyncio.wait((waiting, ended), return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                await asyncio.shield(ended)  # raises what ended it
        finally:
            waiting.cancel()

    async def ended(self) -> None:
        """Wait until it sends no more heartbeats; raises what ended it."""
        if self._ended is not None:
            await asyncio.shield(self._ended)

    def tell_now(self) -> None:
        """Send the next heartbeat at once: something that it tells has changed."""
        if self._membership is not None:
            self._membership.tell_now()

    async def shut_down(self, timeout_ms: int = SHUTDOWN_TIMEOUT_MS) -> bool:
        """Ask to shut down, until the controller allows it; returns whether it did in time. Without a registration the
        broker just stops."""
        if self._membership is not None:
            self._membership.leave()
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
        if self._membership is None or self._link is None or self._offsets is None or self._ended is None:
            return
        self._membership.stop()
        self._ended.cancel()
        await self._link.close()
        await self._offsets.close()
        if self._directory is not None:
            self._directory.close(self.clean_epoch if is_clean else None)

    @property
    def broker_epoch(self) -> int:
        """The epoch of its registration; -1 while it has none."""
        return NO_BROKER_EPOCH if self._membership is None else self._membership.broker_epoch

    @property
    def clean_epoch(self) -> int | None:
        """What the next start names if all of this broker's logs can be closed; None if it was not asked to shut down.

        A broker that has not registered has changed nothing: the epoch that it found is good for its next start.
        """
        return None if self._membership is None else self._membership.clean_epoch

    # --- what its membership asks and tells (`MembershipHost`) --------------------------------------------------------

    def new_incarnation(self) -> UUID:
        """An id that no registration has had."""
        return random_uuid()

    def read_metadata_offset(self, on_read: OnAnswer[int]) -> None:
        """Ask what the broker has applied."""
        if self._offsets is not None:
            self._offsets.begin(self._applied_metadata(), on_read)

    async def _applied_metadata(self) -> int:
        """The end offset of the metadata that the broker has applied; the last known if it cannot be learned now."""
        try:
            async with asyncio.timeout(OFFSET_TIMEOUT_MS / 1000):
                self._known_metadata_offset = await self._metadata_offset()
        except TimeoutError:
            logger.info("the applied offset was not known in time", broker_id=self.broker_id)
        except ApiError as error:
            if not is_passing(error, was_registered=True):
                raise
            logger.info("the applied offset could not be read", broker_id=self.broker_id, reason=str(error))
        return self._known_metadata_offset

    def offline_log_dirs(self) -> Sequence[bytes]:
        """The ids of the log directories that have failed."""
        return [id_to_bytes(of) for of in self._offline_log_dirs()]

    def log_dir_space(self) -> Sequence[LogDirSpace]:
        """The room in the others."""
        return self._log_dir_space()

    def tell(self, message: str) -> None:
        """It has to wait for longer than a moment, or the wait has ended."""
        if self._tell is not None:
            self._tell(message)

    def decided(self, decision: Decision) -> None:
        """Told to nobody: it is no data broker."""

    def registration_accepted(self, broker_epoch: int) -> None:
        """It has an epoch."""
        self.last_broker_epoch = broker_epoch
        self._is_registered.set()

    def heartbeat_answered(self, *, is_fenced: bool) -> None:
        """The controller has answered a heartbeat."""
        self.is_fenced = is_fenced
        (self._is_unfenced.clear if is_fenced else self._is_unfenced.set)()

    def released(self) -> None:
        """It may go."""
        self._may_go.set()
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def membership_ended(self, error: BaseException) -> None:
        """It cannot go on."""
        if self._ended is not None and not self._ended.done():
            self._ended.set_exception(error)


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


def _look_at(ended: asyncio.Future[None]) -> None:
    """What ended it is no error that nobody has looked at, even if nobody waits."""
    if not ended.cancelled():
        ended.exception()
