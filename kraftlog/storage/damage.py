"""The errors for damaged segments and logs, and how a damaged segment is set aside (FM-01)."""

from __future__ import annotations

from kraftbase.errors import CorruptLog
from kraftbase.files.files import parent_directory
from kraftlog.storage.file_handles import FileHandles
from kraftlog.storage.formats.names import DAMAGED_SUFFIX


def _remedy(directory: str) -> str:
    """Return the advice for the operator; its steps are ordered so that no step loses more than the next one."""
    log_directory, _, name = directory.rpartition("/")
    topic, _, partition = name.rpartition("-")
    return (
        "The partition is offline on this broker, and nothing of it was deleted. If another replica leads it, restart"
        " this broker: it copies the log from the leader. If none does, put the files back as they were. If that is not"
        " possible, and another broker with a replica is up, `kraftlog elect --type unclean --topic"
        f" {topic} --partition {partition}` makes that replica the leader. Only if there is no other replica, stop this"
        f" broker, and see what `kraftlog log-dirs accept-loss {name} --directory {log_directory}` would lose"
    )


class DamagedSegment(CorruptLog):
    """A segment has damage that a crash cannot cause. `path` is its `.log`; the partition is offline on this broker."""

    def __init__(self, path: str, position: int, what: str) -> None:
        super().__init__(f"{path} is damaged at byte {position}: {what}. {_remedy(parent_directory(path))}")
        self.path = path


class DamagedLog(CorruptLog):
    """A log lacks records that it has by the inventory or a checkpoint; the partition is offline on this broker."""

    def __init__(self, directory: str, reason: str) -> None:
        super().__init__(f"the log in {directory} is damaged: {reason}. {_remedy(directory)}")


def set_segment_aside(handles: FileHandles, path: str) -> None:
    """Rename a segment's `.log`, durably: the partition is offline after restarts, too. Raises StorageError.

    Does nothing to a segment that is set aside already.
    """
    if not path.endswith(DAMAGED_SUFFIX):
        handles.drop(path)
        handles.files.rename(path, path + DAMAGED_SUFFIX)
        handles.files.fsync_directory(parent_directory(path))
