"""A broker from its start to its end, without an event loop: a process and the simulator run it.

The start has these steps (`broker_states` has the states):

1. Open and recover the log directories. The broker's own directory is locked by then. 2. Follow the metadata log,
listen (without answering), and register. 3. When the broker's own registration is applied, not earlier, take over its
partitions. 4. Answer clients, and report to the controller how far the metadata is applied; the controller then
unfences the broker.

At the end the controller first gives its partitions other leaders. Then the broker closes its connections and logs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol
from uuid import UUID

import structlog

from kraftbase.errors import ApiError, ErrorCode, FlushFailed, StorageError
from kraftbase.files.files import FileSystem
from kraftbase.runtime import Runtime, Timer
from kraftbase.types import Offset
from kraftlog.broker.directory import BrokerDirectory
from kraftlog.broker.metadata.cluster_view import ClusterView
from kraftlog.broker.metadata.in_order import InOrder
from kraftlog.broker.metadata.topic_configs import TopicConfigs
from kraftlog.broker.registered_epochs import RegisteredEpochs
from kraftlog.broker.shell.broker_states import (
    KAFKAS_STATES,
    BrokerState,
    CatchingUp,
    Closed,
    Closing,
    ControlledShutdown,
    Opening,
    Registering,
    Serving,
    check_broker_edge,
)
from kraftlog.broker.shell.ending import Ending, EndingPorts
from kraftlog.broker.shell.failures import FATAL
from kraftlog.broker.shell.membership import SHUTDOWN_TIMEOUT_MS, Candidacy, Membership, Pace
from kraftlog.broker.shell.membership_states import NO_BROKER_EPOCH
from kraftlog.broker.shell.opening import LogsToOpen, open_logs, use_log_directories
from kraftlog.broker.shell.parts import Parts, PartsPorts, PartsSettings
from kraftlog.broker.shell.ports import ControllerPort, MetadataFeed, NetworkPort, OnAnswer, OperationsPort
from kraftlog.replicas.partitions.leadership import LeadershipListener
from kraftlog.replicas.replication.ports import LeaderConnector
from kraftlog.storage.log_manager import LogManager
from kraftlog.telemetry.catalogue import APPLIED_OFFSET, BROKER_STATE
from kraftlog.telemetry.observer import (
    BrokerObserver,
    BrokerStateEntered,
    CleanShutdownMarked,
    Decision,
    DirectoryLost,
    FencingChanged,
    Registered,
    ShutdownAllowed,
    ShutdownAsked,
    ShutdownTimedOut,
)
from kraftlog.telemetry.registry import Registry
from kraftpb.v1.admin_pb2 import LogDirSpace
from statemachine.query.descriptions import BrokerListener

APPLIED_TIMEOUT_MS: Final = 60_000
"""A starting broker that waits this long for its own registration logs a warning, and waits again."""

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellSettings:
    """The settings of a broker."""

    broker_id: int
    rack: str | None
    advertised: Callable[[Mapping[str, int]], Sequence[BrokerListener]]
    """Returns the advertised endpoints of the listeners, given their bound ports."""
    logs: LogsToOpen
    parts: PartsSettings
    pace: Pace
    shutdown_timeout_ms: int = SHUTDOWN_TIMEOUT_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellPorts:
    """What a broker needs from its environment."""

    runtime: Runtime
    files: FileSystem
    controller: ControllerPort
    operations: OperationsPort
    connector: LeaderConnector
    metadata: MetadataFeed
    network: NetworkPort
    registry: Registry
    """Shows what the broker counts; each broker has its own."""
    observer: BrokerObserver
    listeners: Sequence[LeadershipListener]
    """Called for each partition that the broker begins or ceases to lead, in this order."""


class ShellHost(Protocol):
    """The owner of a broker, which the broker calls."""

    def new_incarnation(self) -> UUID:
        """Return a new id for a registration."""
        ...

    def show_progress(self, message: str) -> None:
        """The broker has to wait for longer than a moment, or the wait has ended; `message` says for what."""
        ...

    def opened(self, parts: Parts) -> None:
        """The logs are open, and unchanged so far."""
        ...

    def serving(self) -> None:
        """The broker has taken over its partitions, and answers clients."""
        ...

    def heartbeat_answered(self, *, is_fenced: bool) -> None:
        """The controller has answered a heartbeat."""
        ...

    def closed(self, error: BaseException | None, *, is_clean: bool) -> None:
        """The broker has ended, with `error` if there was one. `is_clean`: the next start counts as a clean one."""
        ...


class BrokerShell:
    """The broker of the module's docstring. Not thread-safe; it is a `MembershipHost`."""

    def __init__(
        self,
        settings: ShellSettings,
        ports: ShellPorts,
        host: ShellHost,
        *,
        directory: BrokerDirectory,
        cluster: ClusterView,
        configs: TopicConfigs,
    ) -> None:
        """`directory` is the broker's own, open and claimed; the shell closes it. `cluster` and `configs` are empty,
        and become publishers of the metadata."""
        self._settings, self._ports, self._host = settings, ports, host
        self._directory = directory
        self._cluster, self._configs = cluster, configs
        self._state: BrokerState = Opening()
        self._logs: LogManager | None = None
        self._parts: Parts | None = None
        self._membership: Membership | None = None
        self._publisher: InOrder | None = None
        self._shutdown_timer: Timer | None = None
        self._end_asked: Closing | None = None
        """Set if the broker is to end while its logs are opened, which cannot be interrupted."""
        ports.registry.read(BROKER_STATE, lambda: KAFKAS_STATES[type(self._state)])
        ports.registry.read(APPLIED_OFFSET, lambda: ports.metadata.applied_end_offset - 1)
        self._is_fenced: bool | None = None
        """None until the first answer to a heartbeat."""
        self._lost_paths: set[str] = set()
        """The log directories whose loss was reported to the observer."""
        self.is_serving = False
        """Whether the broker has taken over its partitions; from then on it answers every client."""

    # --- called by the owner ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the broker. `ShellHost.closed` is called once after that."""
        opened: list[LogManager] = []

        def work() -> None:
            opened.append(open_logs(self._settings.logs, self._ports.files, self._directory, self._ports.runtime))

        def done(error: BaseException | None) -> None:
            self._logs = opened[0] if opened else None
            self._guarded(lambda: self._opened(error))

        self._ports.runtime.run_aside(work, done)

    def shut_down(self) -> None:
        """Have the controller give the partitions other leaders, then end; a timeout ends the wait for it."""
        if isinstance(self._state, Opening):
            self.close()
        elif isinstance(self._state, Registering | CatchingUp | Serving):
            self._enter(ControlledShutdown())
            if self._membership is None:
                self._end(Closing(None))
                return
            if self._parts is not None:
                self._parts.registration.leave()
            self._shutdown_timer = self._ports.runtime.call_later(
                self._settings.shutdown_timeout_ms, self._shutdown_timed_out
            )
            self._ports.observer.decided(ShutdownAsked(self._settings.shutdown_timeout_ms))
            self._membership.leave()

    def close(self) -> None:
        """End without a controlled shutdown."""
        self._end(Closing(None))

    def fail(self, error: BaseException) -> None:
        """End because of an error."""
        self._end(Closing(error))

    @property
    def state(self) -> BrokerState:
        """The current state."""
        return self._state

    @property
    def broker_epoch(self) -> int:
        """The epoch of the last registration; NO_BROKER_EPOCH before the first."""
        return NO_BROKER_EPOCH if self._membership is None else self._membership.last_broker_epoch

    def tell_now(self) -> None:
        """Send the next heartbeat at once: the connection to the controller has broken (CT-65), or a disk is full."""
        if self._membership is not None:
            self._membership.tell_now()

    # --- start --------------------------------------------------------------------------------------------------------

    def _enter(self, state: BrokerState) -> None:
        check_broker_edge(self._state, state)
        self._ports.observer.decided(BrokerStateEntered(type(self._state).__name__, type(state).__name__))
        self._state = state

    def _guarded(self, step: Callable[[], None]) -> None:
        try:
            step()
        except FATAL as error:
            self.fail(error)

    def _opened(self, error: BaseException | None) -> None:
        if self._logs is not None:  # even if the broker ends now, because closing uses the trusted epoch
            self._directory.trust_clean_epoch_of_logs(self._logs.clean_broker_epoch)
        if self._end_asked is not None:
            self._end_now(Closing(self._end_asked.error or error))
            return
        if error is not None or self._logs is None:
            self._end_now(Closing(error))
            return
        use_log_directories(self._directory, self._logs)
        ports = PartsPorts(
            runtime=self._ports.runtime,
            controller=self._ports.controller,
            operations=self._ports.operations,
            connector=self._ports.connector,
            broker_epoch=lambda: self.broker_epoch,
            on_failed=self.fail,
            observer=self._ports.observer,
            listeners=self._ports.listeners,
        )
        self._parts = parts = Parts(
            self._settings.parts, ports, logs=self._logs, cluster=self._cluster, configs=self._configs
        )
        for directory in self._logs.directories:
            directory.on_lost = self._log_lost_soon
            directory.full_disk.on_change = self.tell_now
        self._host.opened(parts)
        self._enter(Registering())
        self._ports.metadata.follow()
        self._ports.network.listen(self._listening)

    def _listening(self, ports: Mapping[str, int]) -> None:
        if not isinstance(self._state, Registering) or self._logs is None:
            return
        settings, online = self._settings, self._logs.online
        self._membership = Membership(
            candidacy=Candidacy(
                settings.broker_id,
                settings.advertised(ports),
                settings.rack,
                [directory.directory_id for directory in online],
            ),
            pace=settings.pace,
            directory=self._directory,
            epochs=RegisteredEpochs(self._ports.files, online, self._ports.runtime),
            controller=self._ports.controller,
            runtime=self._ports.runtime,
            host=self,
        )
        self._membership.start()

    def _wait_for_registration(self) -> None:
        if isinstance(self._state, CatchingUp):
            end_offset = Offset(self._state.broker_epoch + 1)
            self._ports.metadata.wait_applied(end_offset, APPLIED_TIMEOUT_MS, self._applied)

    def _applied(self, error: BaseException | None) -> None:
        if not isinstance(self._state, CatchingUp) or self._parts is None:
            return
        if isinstance(error, ApiError) and error.code is ErrorCode.REQUEST_TIMED_OUT:
            logger.warning("still waiting for this broker's registration in the metadata", reason=str(error))
            self._wait_for_registration()
        elif error is not None:
            self.fail(error)
        else:
            self._publisher = publisher = InOrder(self._parts.publishers, self._metadata_changed, self.fail)
            self._guarded(lambda: self._ports.metadata.install_publisher(publisher))

    def _metadata_changed(self) -> None:
        if isinstance(self._state, CatchingUp) and self._parts is not None:
            self._parts.partitions.when_level(self._taken_over)

    def _taken_over(self) -> None:
        if not isinstance(self._state, CatchingUp) or self._parts is None:
            return
        self._enter(Serving())
        self.is_serving = True
        self._parts.assignments.start()
        self._parts.maintenance.start()
        self._host.serving()

    # --- called by the membership (`MembershipHost`) ------------------------------------------------------------------

    def new_incarnation(self) -> UUID:
        """Return a new id for a registration."""
        return self._host.new_incarnation()

    def read_metadata_offset(self, on_read: OnAnswer[int]) -> None:
        """Call back with the applied end offset, or with 0 until the partitions are taken over, to stay fenced."""
        on_read(self._ports.metadata.applied_end_offset if self.is_serving else 0)

    def offline_log_dirs(self) -> Sequence[bytes]:
        """The ids of the log directories that have failed since the start."""
        return (
            []
            if self._logs is None
            else [directory.directory_id.bytes for directory in self._logs.directories if directory.offline_reason]
        )

    def log_dir_space(self) -> Sequence[LogDirSpace]:
        """The room in the log directories that have not failed, once it has been measured."""
        return [] if self._parts is None else self._parts.maintenance.room.told()

    def show_progress(self, message: str) -> None:
        """Pass on a message about a long wait, or its end."""
        self._host.show_progress(message)

    def decided(self, decision: Decision) -> None:
        """Pass on a decision about a registration."""
        self._ports.observer.decided(decision)

    def registration_accepted(self, broker_epoch: int) -> None:
        """The controller has accepted a registration. After a later one the broker keeps its partitions."""
        self._ports.observer.decided(Registered(broker_epoch))
        if isinstance(self._state, Registering):
            self._enter(CatchingUp(broker_epoch))
            self._wait_for_registration()

    def heartbeat_answered(self, *, is_fenced: bool) -> None:
        """The controller has answered a heartbeat."""
        if is_fenced is not self._is_fenced:
            self._is_fenced = is_fenced
            self._ports.observer.decided(FencingChanged(is_fenced))
        self._host.heartbeat_answered(is_fenced=is_fenced)

    def released(self) -> None:
        """The controller allows the broker to stop: other replicas lead its partitions."""
        self._ports.observer.decided(ShutdownAllowed())
        self._end(Closing(None))

    def membership_ended(self, error: BaseException) -> None:
        """The membership has ended with an error, such as a refusal by the controller."""
        self.fail(error)

    # --- log directories ----------------------------------------------------------------------------------------------

    def _log_lost_soon(self) -> None:
        self._ports.runtime.call_soon(lambda: self._guarded(self._log_lost))

    def _log_lost(self) -> None:
        """Handle the loss of a log directory or of a partition's log."""
        if self._parts is None or isinstance(self._state, Closing | Closed):
            return
        for directory in self._parts.logs.directories:
            if directory.offline_reason and directory.path not in self._lost_paths:
                self._lost_paths.add(directory.path)
                self._ports.observer.decided(DirectoryLost(directory.path, directory.offline_reason))
        self._parts.partitions.check_logs()
        if not self._parts.logs.online:
            self.fail(
                ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "all log directories are offline; repair one, and restart")
            )
        self.tell_now()

    # --- end ----------------------------------------------------------------------------------------------------------

    def _shutdown_timed_out(self) -> None:
        if isinstance(self._state, ControlledShutdown):
            logger.warning("the controller did not allow the shutdown in time", broker_id=self._settings.broker_id)
            self._ports.observer.decided(ShutdownTimedOut())
            self._end(Closing(None))

    def _end(self, closing: Closing) -> None:
        if isinstance(self._state, Closing | Closed):
            return
        if isinstance(self._state, Opening) and self._logs is None:
            self._end_asked = self._end_asked or closing
            return
        self._end_now(closing)

    def _end_now(self, closing: Closing) -> None:
        self._enter(closing)
        if self._shutdown_timer is not None:
            self._shutdown_timer.cancel()
        ports = EndingPorts(
            runtime=self._ports.runtime,
            network=self._ports.network,
            metadata=self._ports.metadata,
            leave_metadata=self._leave_metadata,
            clean_epoch=lambda: self._clean_epoch,
            observer=self._ports.observer,
            on_closed=self._closed,
        )
        Ending(self._logs, self._parts, ports).start()

    def _leave_metadata(self) -> None:
        if self._publisher is not None:
            self._publisher.stop()
        if self._parts is not None:
            self._parts.partitions.stop()

    @property
    def _clean_epoch(self) -> int | None:
        """The epoch for the next start. Before the registration nothing has changed, so the found one is still good."""
        return self._directory.clean_epoch if self._membership is None else self._membership.clean_epoch

    def _closed(self, is_clean: bool) -> None:
        clean_epoch = self._clean_epoch
        if self._membership is not None:
            self._membership.stop()
        error = self._state.error if isinstance(self._state, Closing) else None
        try:
            self._directory.close(clean_epoch if is_clean else None)
        except (StorageError, FlushFailed) as failure:  # such as a full disk: the next start is unclean
            logger.error("clean shutdown not recorded", reason=str(failure))
            is_clean, error = False, error or failure
        if is_clean and clean_epoch is not None:
            self._ports.observer.decided(CleanShutdownMarked(clean_epoch))
        self._enter(Closed(error))
        self._host.closed(error, is_clean=is_clean and clean_epoch is not None)
