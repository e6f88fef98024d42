"""Bugs of trust: what a broker and its controller accept as a clean shutdown (KIP-966).

A clean shutdown is noted in the broker's own directory and in every log directory. A start needs all of these notes and
removes them all. So a bug that believes one of them alone, or leaves one of them there, does no harm by itself. The
bugs here get past the other notes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kraftbase.files.files import FileSystem, join, read_whole, write_new_file
from kraftlog.broker import directory as own_directory
from kraftlog.broker.clean_shutdown import leave_clean_epoch, take_clean_epoch
from kraftlog.broker.directory import BrokerDirectory
from kraftlog.controller.operations import brokers
from kraftlog.sim.engine.mutation import instead, mutation
from kraftlog.sim.replication.parameters import ELIGIBLE
from kraftlog.storage import log_manager
from kraftlog.storage.directory_records import DirectoryRecords
from kraftlog.storage.inventory import decode_clean_shutdown, encode_clean_shutdown

KEPT_NAME: Final = "kept"


@mutation("a clean shutdown counts at every start", "KIP-966")
def one_clean_shutdown_for_ever() -> list[Any]:
    """No start removes the notes in the broker's own directory and in log directories until the next shutdown."""
    end = DirectoryRecords.end

    def take(files: FileSystem, directory: str) -> int | None:
        epoch = take_clean_epoch(files, directory)
        if epoch is not None:
            leave_clean_epoch(files, directory, epoch)
        return epoch

    def leave(self: DirectoryRecords, broker_epoch: int) -> None:
        end(self, broker_epoch)
        write_new_file(self._files, join(self._path, KEPT_NAME), encode_clean_shutdown(broker_epoch))

    def found(self: DirectoryRecords) -> int | None:
        path = join(self._path, KEPT_NAME)
        return decode_clean_shutdown(read_whole(self._files, path)) if self._files.exists(path) else None

    return [
        instead(own_directory, "take_clean_epoch", take),
        instead(DirectoryRecords, "end", leave),
        instead(DirectoryRecords, "clean_broker_epoch", property(found)),
    ]


@mutation("the last registration counts as a clean shutdown", "KIP-966")
def registered_is_clean() -> list[Any]:
    """The controller knows this epoch, too, so it accepts it."""

    def last(epochs: Sequence[tuple[int | None, int]]) -> int | None:
        return max((registered for _, registered in epochs if registered >= 0), default=None)

    def trust(self: BrokerDirectory, clean_epoch: int | None) -> None:
        self.clean_epoch = clean_epoch

    return [
        instead(log_manager, "last_clean_epoch", last),
        instead(BrokerDirectory, "trust_clean_epoch_of_logs", trust),
    ]


@mutation("the controller accepts every shutdown as a clean one", "KIP-966", faults=(ELIGIBLE,))
def all_are_clean() -> list[Any]:
    """A replica that may lack acknowledged records stays eligible."""
    return [instead(brokers, "_was_shut_down_cleanly", lambda request, present: True)]
