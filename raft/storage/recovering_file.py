"""A log that lost durable data to damage, and fetches it again from the leader (docs/formats/log.md).

The data behind the damage is set aside, and the log continues with the undamaged part before it. Before anything else,
a file records this, durably: a replica that started from the shorter log without it might vote for a candidate that
lacks what the replica had acknowledged. The file is removed when the log has everything again.

After a crash at any step the next start finds the file and finishes, or finds the damage again.
"""

from __future__ import annotations

import contextlib

from kraftbase.errors import OutOfSpace, StorageError
from kraftbase.files.files import FileSystem, join, read_whole, write_new_file
from kraftbase.files.properties import decode_properties, encode_properties
from kraftbase.types import Epoch, Offset
from raft.core.types import UNKNOWN_UNTIL_OFFSET, RecoveringLog
from raft.storage.advice import NOBODY_TO_FETCH_FROM
from raft.storage.copies import mend_copies, read_copies, remove_copies
from raft.storage.frame import find_frames
from raft.storage.log_start_file import read_log_start, remove_log_start
from raft.storage.segment import parse_segment_name, segment_name

RECOVERING_NAME = "recovering"
DAMAGED_SUFFIX = ".damaged"
"""The suffix of files with set-aside data, for an operator to inspect."""

FORMAT_VERSION = 1


class RecoveringUnknown(StorageError):
    """A log recovers, and both copies of the file that records how far are damaged."""

    def __init__(self, finding: str) -> None:
        super().__init__(f"{finding}. {NOBODY_TO_FETCH_FROM}")
        self.finding = finding


def encode_recovering(recovering: RecoveringLog) -> bytes:
    """The content of the file: lines of `key=value`, the last one the CRC-32C of the lines before."""
    reason = " ".join(recovering.reason.splitlines()).encode("utf-8", "backslashreplace").decode()
    return encode_properties(
        f"version={FORMAT_VERSION}\nuntil.offset={recovering.until_offset}\nepoch={recovering.epoch}\nreason={reason}\n"
    )


def decode_recovering(data: bytes, path: str) -> RecoveringLog:
    """The recovery in the file.

    Raises RecoveringUnknown naming `path` when it is damaged, StorageError for an unknown version.
    """
    values = decode_properties(data)
    if values is None:
        raise RecoveringUnknown(
            f"{path} is damaged: it is unknown up to which offset this replica must fetch its log again"
        )
    if values.get("version") != str(FORMAT_VERSION):
        raise StorageError(
            f"{path} has format version {values.get('version')}; this program knows version {FORMAT_VERSION}. Use the"
            " program that wrote it"
        )
    return RecoveringLog(Offset(int(values["until.offset"])), Epoch(int(values["epoch"])), values["reason"])


def read_recovering(files: FileSystem, directory: str) -> RecoveringLog | None:
    """Return what the log in `directory` is recovering from; None if it is not recovering.

    Copies that differ are of two recoveries: the larger offset and epoch cover both. Raises RecoveringUnknown when
    copies exist and none is whole, StorageError for an unknown version.
    """
    found: list[RecoveringLog] = []
    damage: RecoveringUnknown | None = None
    for path, data in read_copies(files, directory, RECOVERING_NAME).items():
        try:
            found.append(decode_recovering(data, path))
        except RecoveringUnknown as error:
            damage = error
    if damage is not None and not found:
        raise damage
    if not found:
        return None
    until_offset = max(recovering.until_offset for recovering in found)
    return RecoveringLog(until_offset, max(recovering.epoch for recovering in found), found[0].reason)


def say_recovering(files: FileSystem, directory: str, recovering: RecoveringLog) -> None:
    """Record durably that the log in `directory` recovers. Raises OutOfSpace if there is no room for one copy."""
    data = encode_recovering(recovering)
    write_new_file(files, join(directory, RECOVERING_NAME), data)
    mend_copies(files, directory, RECOVERING_NAME, data)


def is_recovering(files: FileSystem, directory: str, epoch: Epoch | None) -> bool:
    """Whether the log in `directory` recovers.

    If both copies are damaged, the log must recover everything that a leader has, and this is recorded
    again. `epoch`, the replica's durable one, is no lower than the lost one, and so requires no less. It is None if
    there is no other voter to fetch from: then damaged copies raise RecoveringUnknown. Raises StorageError for an
    unknown version, FlushFailed.
    """
    try:
        return read_recovering(files, directory) is not None
    except RecoveringUnknown as error:
        if epoch is None:
            raise
        say_recovering(files, directory, RecoveringLog(UNKNOWN_UNTIL_OFFSET, epoch, error.finding))
        return True


def mend_recovering(files: FileSystem, directory: str) -> None:
    """Rewrite a copy that is damaged or missing. Raises as `read_recovering` does, and FlushFailed."""
    recovering = read_recovering(files, directory)
    if recovering is not None:
        mend_copies(files, directory, RECOVERING_NAME, encode_recovering(recovering))


def begin_recovering(
    files: FileSystem,
    directory: str,
    *,
    epoch: Epoch,
    reason: str,
    durable_offset: Offset,
    base_offset: Offset,
    position: int,
) -> None:
    """Record that the log recovers, then set the damaged part aside: from byte `position` of one segment on.

    `epoch` is the replica's durable epoch, `durable_offset` what is known to have been durable, `base_offset` names the
    segment. For a log that recovers already the first file stays valid: records fetched since then never counted.
    Raises StorageError, OutOfSpace, FlushFailed.
    """
    if read_recovering(files, directory) is None:
        recovering = RecoveringLog(_until_offset(files, directory, durable_offset), epoch, reason)
        say_recovering(files, directory, recovering)
    bases = sorted(base for name in files.list_directory(directory) if (base := parse_segment_name(name)) is not None)
    for base in reversed([base for base in bases if base > base_offset or (base == base_offset and position == 0)]):
        _set_aside(files, directory, segment_name(base))
    if position > 0:
        _cut(files, directory, segment_name(base_offset), position)


def begin_anew(
    files: FileSystem, directory: str, *, epoch: Epoch, reason: str, durable_offset: Offset | None = None
) -> None:
    """Discard a log that starts above 0, when no local data holds the records below: it recovers, from offset 0.

    All of its segments are set aside; the next open finds an empty log. `epoch` is the replica's durable epoch,
    `durable_offset` what is known to have been durable; None: everything below the start was. Not while the log is
    open. After a crash the log is unchanged, or recovers and is discarded again: the file with the start is removed
    last, because without it the remaining segments would count as damage. Raises StorageError, OutOfSpace, FlushFailed.
    """
    begin_recovering(
        files,
        directory,
        epoch=epoch,
        reason=reason,
        durable_offset=read_log_start(files, directory).offset if durable_offset is None else durable_offset,
        base_offset=Offset(0),
        position=0,
    )
    remove_log_start(files, directory)


def end_recovering(files: FileSystem, directory: str) -> None:
    """The log has everything again: remove the file, durably, and then the set-aside data. Raises FlushFailed."""
    remove_copies(files, directory, RECOVERING_NAME)
    for name in files.list_directory(directory):
        if name.endswith(DAMAGED_SUFFIX):
            files.remove(join(directory, name))
    files.fsync_directory(directory)


def _until_offset(files: FileSystem, directory: str, durable_offset: Offset) -> Offset:
    """The end of the last valid frame, even behind damage; UNKNOWN_UNTIL_OFFSET if the log may have continued there.

    That is possible if the log once reached further, or the last segment cannot be read, or does not end in zeros.
    """
    bases = [base for name in files.list_directory(directory) if (base := parse_segment_name(name)) is not None]
    if not bases:
        return UNKNOWN_UNTIL_OFFSET
    end_offset = max(bases)
    path = join(directory, segment_name(end_offset))
    try:
        data = read_whole(files, path)
    except StorageError:
        return UNKNOWN_UNTIL_OFFSET
    end_position = 0
    for frame in find_frames(data, 0, path=path):
        end_position = frame.end_position
        end_offset = max(end_offset, frame.durable_before if frame.batch is None else frame.batch.end_offset)
    has_more = end_offset < durable_offset or bool(data[end_position:].strip(b"\0"))
    return UNKNOWN_UNTIL_OFFSET if has_more else end_offset


def _set_aside(files: FileSystem, directory: str, name: str) -> None:
    files.rename(join(directory, name), join(directory, name + DAMAGED_SUFFIX))
    files.fsync_directory(directory)


def _cut(files: FileSystem, directory: str, name: str, position: int) -> None:
    """Keep a copy of the segment if there is room, then truncate it."""
    path = join(directory, name)
    with contextlib.suppress(OutOfSpace):  # the copy only helps an operator
        write_new_file(files, path + DAMAGED_SUFFIX, read_whole(files, path))
    file = files.open(path)
    try:
        file.truncate(position)
        file.fsync()
    finally:
        file.close()
