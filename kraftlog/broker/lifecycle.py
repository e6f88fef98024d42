"""A broker's life with the controller: registration (CT-33), heartbeats, fencing, controlled shutdown (CT-35).

    async with BrokerLifecycle(client, broker_id=1, listeners=[("PLAINTEXT", "localhost", 9092)]) as life:
        await life.unfenced()

It runs `kraftlog.broker.shell.membership` on an event loop. When the context is left, the broker does a controlled
shutdown: its partitions get other leaders before it stops, where other replicas can lead.
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
"""How long a heartbeat waits for the applied offset: for the answer of a node, and in all. After that the broker
reports the last known offset: a heartbeat in time matters more than an exact offset."""

PORT_BASE: Final = 9_092
"""`living_brokers` register one port each, above this one."""

_NAMESPACE: Final = uuid.UUID("6b7261d0-6c6f-5067-8469-726563746f72")
"""Namespace for the ids of the log directories of brokers that keep no data."""

logger = structlog.get_logger(__name__)


class BrokerLifecycle:
    """One broker, on one event loop."""

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
        """`metadata_offset` returns the end offset of the metadata that the broker has applied; without it, the broker
        reports the offset of the node that answers the client's reads. `log_dirs` are the ids of its log directories.
        Without them it has one, with the same id at every start: its partitions are assigned to that directory, and
        with another id it could not lead them. `data_dir` keeps the broker's cluster and how it was shut down; without
        it each start counts as one after a crash. `directory` is the same directory, opened and claimed by the caller.
        `offline_log_dirs` returns the ids of failed log directories, `log_dir_space` the room in the others.
        `show_progress` is called with a message when the broker has to wait for longer than a moment, and when the wait
        has ended. `epochs` has the epoch of the last registration in each of `log_dirs` (CT-38). The caller closes
        `client`."""
        self._client = client
        self.broker_id = broker_id
        ids = log_dirs or [uuid_to_text(uuid.uuid5(_NAMESPACE, str(broker_id)))]
        self._candidacy = Candidacy(
            broker_id, [BrokerListener(*at) for at in listeners], rack, [uuid_from_text(log_dir) for log_dir in ids]
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
        """The epoch of the last registration; -1 before the first."""
        self.is_fenced = True
        """Whether the broker is fenced, by the last heartbeat's answer."""

    def start(self) -> None:
        """Register as a new incarnation, and then send heartbeats.

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
        # At once, because the controller may suspect that this process has ended (CT-65).
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
        """Wait until the controller has accepted the registration."""
        await self._wait_for(self._is_registered)

    async def unfenced(self) -> None:
        """Wait until the controller has unfenced the broker."""
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
        """Wait until the broker no longer sends heartbeats. Raises the error that ended it, if any."""
        if self._ended is not None:
            await asyncio.shield(self._ended)

    def tell_now(self) -> None:
        """Send the next heartbeat at once: something that it reports has changed."""
        if self._membership is not None:
            self._membership.tell_now()

    async def shut_down(self, timeout_ms: int = SHUTDOWN_TIMEOUT_MS) -> bool:
        """Ask for a controlled shutdown until the controller allows it. Return whether it did within `timeout_ms`. A
        broker that is not registered just stops."""
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
        """Send nothing more, like a process that dies, unless it was shut down before. Raises StorageError.

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
        """The epoch of the registration; -1 without one."""
        return NO_BROKER_EPOCH if self._membership is None else self._membership.broker_epoch

    @property
    def clean_epoch(self) -> int | None:
        """The epoch for the next start if all logs can be closed; None if no shutdown was asked for.

        A broker that has not registered has changed nothing, so the epoch that it found is good for its next start.
        """
        return None if self._membership is None else self._membership.clean_epoch

    # --- called by the membership (`MembershipHost`) ------------------------------------------------------------------

    def new_incarnation(self) -> UUID:
        """Return a new id for a registration."""
        return random_uuid()

    def read_metadata_offset(self, on_read: OnAnswer[int]) -> None:
        """Call back with the end offset of the applied metadata."""
        if self._offsets is not None:
            self._offsets.begin(self._applied_metadata(), on_read)

    async def _applied_metadata(self) -> int:
        """Return the end offset of the applied metadata; the last known one if it cannot be read now."""
        try:
            async with asyncio.timeout(OFFSET_TIMEOUT_MS / 1000):
                self._known_metadata_offset = await self._metadata_offset()
        except TimeoutError:
            logger.info("applied offset not read in time", broker_id=self.broker_id)
        except ApiError as error:
            if not is_passing(error, was_registered=True):
                raise
            logger.info("applied offset not read", broker_id=self.broker_id, reason=str(error))
        return self._known_metadata_offset

    def offline_log_dirs(self) -> Sequence[bytes]:
        """The ids of the log directories that have failed."""
        return [id_to_bytes(log_dir) for log_dir in self._offline_log_dirs()]

    def log_dir_space(self) -> Sequence[LogDirSpace]:
        """The room in the log directories that have not failed."""
        return self._log_dir_space()

    def show_progress(self, message: str) -> None:
        """Pass on a message about a long wait, or its end."""
        if self._tell is not None:
            self._tell(message)

    def decided(self, decision: Decision) -> None:
        """Ignored: this is no data broker, and has no observer."""

    def registration_accepted(self, broker_epoch: int) -> None:
        """The controller has accepted a registration."""
        self.last_broker_epoch = broker_epoch
        self._is_registered.set()

    def heartbeat_answered(self, *, is_fenced: bool) -> None:
        """The controller has answered a heartbeat."""
        self.is_fenced = is_fenced
        (self._is_unfenced.clear if is_fenced else self._is_unfenced.set)()

    def released(self) -> None:
        """The controller allows the broker to stop."""
        self._may_go.set()
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def membership_ended(self, error: BaseException) -> None:
        """The membership has ended with an error."""
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
    """Retrieve the exception, so that asyncio does not log it as never retrieved."""
    if not ended.cancelled():
        ended.exception()
