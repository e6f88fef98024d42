"""Walking through segments, damaged or not, and rehearsing recovery: everything is found, and nothing changes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftbase.errors import InvariantViolation, StorageError
from kraftbase.files.files import SECTOR_BYTES, read_whole
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.files.posix import PosixFileSystem
from kraftbase.types import Offset
from raft.storage.frame import HEAD_BYTES, encode_frames, encode_marker
from raft.storage.inspection import (
    DamagedStretch,
    FoundFrame,
    LogCursor,
    UnchangedFiles,
    rehearse_recovery,
    segment_base_offsets,
    walk_segment,
)
from raft.storage.recovery import DamagedLog, recover
from raft.storage.segment import segment_name
from raft.storage.segmented_log import SegmentedLog
from tests.raft.storage.builders import SMALL, batches_from

BATCHES = batches_from(0, 6)
FRAMES, LAST_CRC = encode_frames(BATCHES, 0, 0, 0)
STARTS = [sum(HEAD_BYTES + len(batch.data) for batch in BATCHES[:count]) for count in range(len(BATCHES) + 1)]


def walk(data: bytes, base_offset: int | None = 0) -> list[FoundFrame | DamagedStretch]:
    return list(walk_segment(data, LogCursor.at_segment(None if base_offset is None else Offset(base_offset))))


def flipped(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 0xFF]) + data[position + 1 :]


def stretches(found: list[FoundFrame | DamagedStretch]) -> list[DamagedStretch]:
    return [item for item in found if isinstance(item, DamagedStretch)]


def frames(found: list[FoundFrame | DamagedStretch]) -> list[FoundFrame]:
    return [item for item in found if isinstance(item, FoundFrame)]


def test_a_sound_segment_is_its_frames_and_no_more() -> None:
    marker, _ = encode_marker(len(FRAMES), LAST_CRC, BATCHES[-1].end_offset)
    found = walk(FRAMES + marker + bytes(1000))
    assert [item.frame.batch for item in frames(found)] == [*BATCHES, None]
    assert all(item.is_chained and not item.misfits for item in frames(found))
    assert stretches(found) == []


def test_a_frame_that_ends_in_zeros_at_the_end_of_the_file_is_whole() -> None:
    marker, _ = encode_marker(0, 0, 0)
    assert [item.frame.end_position for item in frames(walk(marker))] == [HEAD_BYTES]


@given(st.integers(min_value=0, max_value=len(FRAMES) - 1))
def test_a_flipped_byte_costs_one_frame_and_the_walk_goes_on(position: int) -> None:
    found = walk(flipped(FRAMES, position))
    hit = max(index for index, start in enumerate(STARTS) if start <= position)
    assert [(item.position, item.end_position) for item in stretches(found)] == [(STARTS[hit], STARTS[hit + 1])]
    assert [item.frame.batch for item in frames(found)] == BATCHES[:hit] + BATCHES[hit + 1 :]
    behind = [item.is_chained for item in frames(found)][hit:]
    assert behind == [None, *[True] * len(behind)][: len(behind)]  # the frame before the first one is unknown


@pytest.mark.parametrize(
    ("position", "looks_like"),
    [
        (0, "a frame whose checksum does not match"),
        (4, "garbage"),
        (12, "longer than the rest of the file"),
        (19, "a frame that belongs at byte"),
        (40, "a frame whose batch is damaged: its CRC does not match its bytes"),
    ],
)
def test_a_stretch_says_what_it_looks_like(position: int, looks_like: str) -> None:
    (stretch,) = stretches(walk(flipped(FRAMES, STARTS[1] + position)))
    assert looks_like in stretch.looks_like


def test_a_lost_sector_is_seen_as_such() -> None:
    data, _ = encode_frames(batches_from(0, 6, size=400), 0, 0, 0)
    holed = data[:SECTOR_BYTES] + bytes(SECTOR_BYTES) + data[2 * SECTOR_BYTES :]
    (stretch,) = stretches(walk(holed))
    assert stretch.has_lost_sector
    (stretch,) = stretches(walk(flipped(data, SECTOR_BYTES)))
    assert not stretch.has_lost_sector


def test_zeros_between_frames_are_damage() -> None:
    data = FRAMES[: STARTS[2]] + bytes(STARTS[3] - STARTS[2]) + FRAMES[STARTS[3] :]
    (stretch,) = stretches(walk(data))
    assert stretch == DamagedStretch(STARTS[2], STARTS[3], "zeros", True)


def test_a_frame_of_an_unknown_version_is_told_from_damage() -> None:
    from kraftbase.checksum import crc32c

    head = FRAMES[4:8] + b"\x09" + FRAMES[9:36]
    data = crc32c(head).to_bytes(4, "big") + head + FRAMES[36:]
    (stretch,) = stretches(walk(data))
    assert stretch.looks_like == "a frame of version 9 and kind 1, which this program does not know"


def test_a_frame_of_another_history_does_not_chain() -> None:
    alien, _ = encode_frames(BATCHES[3:4], STARTS[3], 0xBAD, 0)
    found = frames(walk(FRAMES[: STARTS[3]] + alien))
    assert [item.is_chained for item in found] == [True, True, True, False]
    assert all(not item.misfits for item in found)


def test_offsets_epochs_and_durability_that_do_not_go_on_are_named() -> None:
    first, crc = encode_frames(batches_from(0, 1, epoch=5), 0, 0, 0)
    for batches, durable_before, words in [
        (batches_from(2, 1, epoch=5), 0, "it starts at offset 2, where 1 is next"),
        (batches_from(1, 1, epoch=4), 0, "its epoch 4 is below epoch 5"),
        (batches_from(1, 1, epoch=5), 2, "it calls offsets below 2 durable, where the log ends at 1"),
    ]:
        second, _ = encode_frames(batches, len(first), crc, durable_before)
        (_, found) = frames(walk(first + second))
        assert found.is_chained and words in " ".join(found.misfits)


def test_durable_before_must_not_go_back() -> None:
    first, crc = encode_frames(BATCHES[:2], 0, 0, 0)
    vouched, crc = encode_marker(len(first), crc, 2)
    forgetful, _ = encode_marker(len(first + vouched), crc, 1)
    *_, found = frames(walk(first + vouched + forgetful))
    assert found.misfits == ("it calls offsets below 1 durable, an earlier frame 2",)


@given(st.binary(max_size=300), st.one_of(st.none(), st.integers(min_value=0, max_value=9)))
def test_any_bytes_are_walked_once_from_end_to_end(data: bytes, base_offset: int | None) -> None:
    position = 0
    for item in walk(data + FRAMES[: STARTS[2]] + data, base_offset):
        start, end = (
            (item.frame.position, item.frame.end_position)
            if isinstance(item, FoundFrame)
            else (item.position, item.end_position)
        )
        assert position == start < end
        position = end


# --- rehearsing recovery ---------------------------------------------------------------------------------------------


def write_log(directory: Path) -> None:
    """A log of several segments, the last with frames that nothing shows to be flushed."""
    log = SegmentedLog.open(PosixFileSystem(), str(directory), config=SMALL, minimum_durable_offset=Offset(0))
    for batch in batches_from(0, 11):
        log.append([batch])
        if batch.base_offset < 11:
            log.flush()
    log.close()


@pytest.fixture(scope="module")
def log_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("log")
    write_log(directory)
    return directory


def contents(directory: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in sorted(directory.iterdir())}


def in_memory(directory: Path) -> MemoryFileSystem:
    files = MemoryFileSystem()
    files.make_directories("log")
    for path in directory.iterdir():
        file = files.open(f"log/{path.name}", create=True)
        file.write_at(0, path.read_bytes())
        file.fsync()
    files.fsync_directory("log")
    return files


def check_of(directory: Path) -> tuple[object, ...]:
    try:
        report = rehearse_recovery(directory).report
    except DamagedLog as damage:
        return "damaged", damage.base_offset, damage.position, damage.durable_offset
    return "opens", report.log_end_offset, report.torn_bytes, report.torn_position


def check_of_a_start(files: MemoryFileSystem) -> tuple[object, ...]:
    try:
        report = recover(files, "log", Offset(0)).report
    except DamagedLog as damage:
        return "damaged", damage.base_offset, damage.position, damage.durable_offset
    return "opens", report.log_end_offset, report.torn_bytes, report.torn_position


def walk_log(directory: Path) -> list[FoundFrame | DamagedStretch]:
    bases = segment_base_offsets(directory)
    cursor = LogCursor.at_segment(bases[0])
    found: list[FoundFrame | DamagedStretch] = []
    for base in bases:
        cursor.enter_segment(base)
        found += walk_segment((directory / segment_name(base)).read_bytes(), cursor)
    return found


@given(data=st.data())
def test_the_rehearsal_is_a_start_that_changes_nothing_and_the_walk_sees_whatever_it_saw(
    log_directory: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    directory = tmp_path_factory.mktemp("damaged")
    for path in log_directory.iterdir():
        (directory / path.name).write_bytes(path.read_bytes())
    path = directory / segment_name(data.draw(st.sampled_from(segment_base_offsets(directory))))
    content = path.read_bytes()
    start = data.draw(st.integers(0, len(content)))
    put = data.draw(st.one_of(st.binary(max_size=8), st.just(bytes(600)), st.just(None)))
    path.write_bytes(content[:start] if put is None else content[:start] + put + content[start + len(put) :])
    before = contents(directory)
    check = check_of(directory)
    assert contents(directory) == before
    assert check == check_of_a_start(in_memory(directory))
    found = walk_log(directory)
    is_clean = not stretches(found) and all(item.is_chained and not item.misfits for item in frames(found))
    if is_clean and check[0] == "opens":
        assert check[2] == 0
    if not is_clean:
        assert check[0] == "damaged" or check[2]


def test_nothing_can_be_changed_through_the_files_of_a_rehearsal(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"as it was")
    files = UnchangedFiles()
    file = files.open(str(path))
    file.write_at(0, b"other")
    file.truncate(1)
    file.reserve(100)
    file.fsync()
    for change in (lambda: files.rename(str(path), str(path) + "2"), lambda: files.try_lock(str(path))):
        with pytest.raises(InvariantViolation, match="open for inspection only"):
            change()
    with pytest.raises(StorageError, match="it exists"):
        files.open(str(path), create=True)
    files.remove(str(path))
    files.open(str(path) + "2", create=True).write_at(0, b"new")
    assert files.list_directory(str(tmp_path)) == ["file2"], "the change is visible through these files"
    assert not files.exists(str(path))
    assert read_whole(files, str(path) + "2") == b""
    for gone in (lambda: files.remove(str(path)), lambda: files.open(str(path))):
        with pytest.raises(StorageError, match="there is no such file"):
            gone()
    assert read_whole(PosixFileSystem(), str(path)) == b"as it was"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"cannot read .*/none: No such file"):
        UnchangedFiles().open(str(tmp_path / "none"))
