"""Bugs of a broker's start and end: its log directories, its registration, the order of taking over and closing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

from kraftbase.files.files import FileSystem
from kraftbase.runtime import OnDone
from kraftbase.types import Offset
from kraftlog.broker.directory import BrokerDirectory
from kraftlog.broker.registered_epochs import RegisteredEpochs
from kraftlog.broker.shell import opening
from kraftlog.broker.shell.broker_shell import APPLIED_TIMEOUT_MS, BrokerShell
from kraftlog.broker.shell.broker_states import CatchingUp
from kraftlog.broker.shell.directory_assignments import DirectoryAssignments
from kraftlog.broker.shell.ending import Ending, Step
from kraftlog.broker.shell.opening import LogsToOpen
from kraftlog.broker.shell.ports import OnAnswer
from kraftlog.sim.engine.mutation import instead, mutation

# --- log directories --------------------------------------------------------------------------------------------------


@mutation("an empty disk gets the id of the disk that it replaces", "KIP-858")
def one_id_for_ever() -> list[Any]:
    """The controller counts the empty disk as the previous one, with its logs."""

    def ids(to_open: LogsToOpen, files: FileSystem, own: BrokerDirectory) -> Iterator[UUID]:
        number = 0
        while True:
            number += 1
            yield UUID(int=(to_open.broker_id << 64) + 500_000 + number)

    return [instead(opening, "_directory_ids", ids)]


# --- registration -----------------------------------------------------------------------------------------------------


@mutation("log directories do not note their registration", "CT-38")
def notes_no_registration() -> list[Any]:
    """No log directory is recognized as an older copy."""

    def note(self: RegisteredEpochs, broker_epoch: int, older_log_dirs: object, on_noted: OnDone) -> None:
        on_noted(None)

    return [instead(RegisteredEpochs, "store", note)]


@mutation("a heartbeat is sent before the log directories have noted the epoch", "CT-38")
def does_not_wait_for_the_note() -> list[Any]:
    """A power cut may lose the note while acknowledged records stay."""
    noted = RegisteredEpochs.store

    def note(self: RegisteredEpochs, broker_epoch: int, older_log_dirs: list[bytes], on_noted: OnDone) -> None:
        noted(self, broker_epoch, older_log_dirs, lambda error: None)
        on_noted(None)

    return [instead(RegisteredEpochs, "store", note)]


@mutation("a registration names no epochs of log directories", "CT-38")
def names_no_epochs() -> list[Any]:
    """The controller cannot detect that a directory is an older copy."""
    return [instead(RegisteredEpochs, "named", lambda self: [])]


@mutation("a lost log directory is not reported", "KIP-858")
def tells_no_lost_directory() -> list[Any]:
    """No other replica is elected for the partitions of the directory."""
    return [instead(BrokerShell, "offline_log_dirs", lambda self: [])]


@mutation("the controller does not learn where replicas are", "KIP-858")
def tells_no_places() -> list[Any]:
    """The controller knows of no replica in a failed directory."""
    return [instead(DirectoryAssignments, "_ask_soon", lambda self: None)]


# --- the order of start and end ---------------------------------------------------------------------------------------


@mutation("a broker serves before it has applied its own registration", "KAFKA-14372")
def catches_up_with_nothing() -> list[Any]:
    """The broker takes its partitions over by metadata from before it was down."""

    def wait(self: BrokerShell) -> None:
        if isinstance(self._state, CatchingUp):
            self._ports.metadata.wait_applied(Offset(0), APPLIED_TIMEOUT_MS, self._applied)

    return [instead(BrokerShell, "_wait_for_registration", wait)]


@mutation("a broker is unfenced before it has taken its partitions over", "KIP-631")
def tells_what_it_has_not_carried_out() -> list[Any]:
    """The broker reports its metadata offset too early, so clients find neither partitions nor leaders."""

    def read(self: BrokerShell, on_read: OnAnswer[int]) -> None:
        on_read(self._ports.metadata.applied_end_offset)

    return [instead(BrokerShell, "read_metadata_offset", read)]


@mutation("a broker ends before others lead its partitions", "CT-35")
def hands_nothing_over() -> list[Any]:
    """The broker leaves its epoch, as after a controlled shutdown."""

    def shut_down(self: BrokerShell) -> None:
        if self._membership is not None:
            self._membership.is_leaving = True
        self.close()

    return [instead(BrokerShell, "shut_down", shut_down)]


@mutation("connections are closed after the logs", "our own")
def closes_the_network_last() -> list[Any]:
    """Requests that arrive during the shutdown find no log."""
    steps = Ending._all_steps

    def late(self: Ending) -> Iterator[Step]:
        close: Callable[..., Any] = self._ports.network.close
        yield from (step for step in steps(self) if step != close)
        if self._parts is not None:
            yield close

    return [instead(Ending, "_all_steps", late)]
