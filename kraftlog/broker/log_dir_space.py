"""The room in a broker's log directories: measured periodically, and reported with each heartbeat (CT-66)."""

from __future__ import annotations

from contextlib import suppress

from kraftbase.errors import StorageError
from kraftbase.files.files import Space
from kraftlog.storage.log_directory import LogDirectory
from kraftlog.storage.log_manager import LogManager
from kraftpb.v1.admin_pb2 import LogDirSpace


class LogDirRoom:
    """The room of one broker."""

    def __init__(self, logs: LogManager) -> None:
        self._logs = logs
        self._is_measuring = False

    def measure(self) -> None:
        """Measure, in the disk's thread, how much room each directory has (`LogDirectory.full_disk`)."""
        if self._is_measuring:
            return  # the last measurement has not ended: the disk is slow
        self._is_measuring = True
        online = self._logs.online
        found: dict[LogDirectory, Space] = {}

        def measure() -> None:
            for directory in online:
                with suppress(StorageError):  # the next write reports what is wrong
                    found[directory] = directory.space()

        def measured(error: BaseException | None) -> None:
            self._is_measuring = False
            for directory, space in found.items():
                if not directory.offline_reason:
                    directory.full_disk.measured(space)

        self._logs.runtime.run_on_disk(measure, measured)

    def told(self) -> list[LogDirSpace]:
        """Return the report to the controller, about the directories that are online and have been measured."""
        return [
            LogDirSpace(
                log_dir=directory.directory_id.bytes,
                free_bytes=directory.full_disk.space.free_bytes,
                low_water_bytes=directory.full_disk.low_water_bytes,
                is_full=directory.full_disk.is_full,
            )
            for directory in self._logs.online
            if directory.full_disk.space is not None
        ]
