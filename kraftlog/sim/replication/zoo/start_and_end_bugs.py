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


@mutation("an empty disk gets the id of the one that it is in the place of", "KIP-858")
def one_id_for_ever() -> list[Any]:
    """The controller takes it for that one, with its logs."""

    def ids(to_open: LogsToOpen, files: FileSystem, own: BrokerDirectory) -> Iterator[UUID]:
        number = 0
        while True:
            number += 1
            yield UUID(int=(to_open.broker_id << 64) + 500_000 + number)

    return [instead(opening, "_directory_ids", ids)]


# --- registration -----------------------------------------------------------------------------------------------------


@mutation("log directories do not note their registration", "CT-38")
def notes_no_registration() -> list[Any]:
    """None of them is an older copy then."""

    def note(self: RegisteredEpochs, broker_epoch: int, older_log_dirs: object, on_noted: OnDone) -> None:
        on_noted(None)

    return [instead(RegisteredEpochs, "note", note)]


@mutation("a heartbeat leaves before the log directories have noted the epoch", "CT-38")
def does_not_wait_for_the_note() -> list[Any]:
    """A power cut may take the note, and what was acknowledged stays."""
    noted = RegisteredEpochs.note

    def note(self: RegisteredEpochs, broker_epoch: int, older_log_dirs: list[bytes], on_noted: OnDone) -> None:
        noted(self, broker_epoch, older_log_dirs, lambda error: None)
        on_noted(None)

    return [instead(RegisteredEpochs, "note", note)]


@mutation("a registration names no epochs of log directories", "CT-38")
def names_no_epochs() -> list[Any]:
    """The controller cannot tell that one is an older copy."""
    return [instead(RegisteredEpochs, "named", lambda self: [])]


@mutation("a lost log directory is not told", "KIP-858")
def tells_no_lost_directory() -> list[Any]:
    """Nobody else is elected for what was in it."""
    return [instead(BrokerShell, "offline_log_dirs", lambda self: [])]


@mutation("the controller does not hear where replicas are", "KIP-858")
def tells_no_places() -> list[Any]:
    """It knows of none that was in a directory that has failed."""
    return [instead(DirectoryAssignments, "_ask_soon", lambda self: None)]


# --- the order of the start and of the end ----------------------------------------------------------------------------


@mutation("a broker serves before it has applied its own registration", "KAFKA-14372")
def catches_up_with_nothing() -> list[Any]:
    """It takes its partitions over by metadata from before it was down."""

    def wait(self: BrokerShell) -> None:
        if isinstance(self._state, CatchingUp):
            self._ports.metadata.wait_applied(Offset(0), APPLIED_TIMEOUT_MS, self._applied)

    return [instead(BrokerShell, "_wait_for_registration", wait)]


@mutation("a broker is unfenced before it has taken its partitions over", "KIP-631")
def tells_what_it_has_not_carried_out() -> list[Any]:
    """It says how far its metadata goes; clients find neither partitions nor leaders."""

    def read(self: BrokerShell, on_read: OnAnswer[int]) -> None:
        on_read(self._ports.metadata.applied_end_offset)

    return [instead(BrokerShell, "read_metadata_offset", read)]


@mutation("a broker ends before others lead its partitions", "CT-35")
def hands_nothing_over() -> list[Any]:
    """It leaves its epoch, as after a controlled shutdown."""

    def shut_down(self: BrokerShell) -> None:
        if self._membership is not None:
            self._membership.is_leaving = True
        self.close()

    return [instead(BrokerShell, "shut_down", shut_down)]


@mutation("connections are closed after the logs", "our own")
def closes_the_network_last() -> list[Any]:
    """What comes meanwhile finds no log."""
    steps = Ending._all_steps

    def late(self: Ending) -> Iterator[Step]:
        close: Callable[..., Any] = self._ports.network.close
        yield from (step for step in steps(self) if step != close)
        if self._parts is not None:
            yield close

    return [instead(Ending, "_all_steps", late)]
