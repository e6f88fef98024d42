"""A snapshot that is not whole raises CorruptSnapshot, and never anything else (SN-04 to SN-06)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import sha256

import pytest

from kraftbase.errors import CorruptSnapshot, StorageError
from kraftbase.files.files import File
from kraftbase.files.memory import MemoryFile, MemoryFileSystem
from kraftpb.v1.batch_pb2 import ControlRecord, LeaderChange, SnapshotFooter, SnapshotHeader
from raft.core.types import OffsetAndEpoch
from raft.storage.batch import HEADER_BYTES
from snapshot.format import BATCH_BYTES_MAX
from snapshot.names import snapshot_name
from snapshot.reader import SnapshotReader
from tests.effort import some
from tests.snapshot.builders import (
    TIMESTAMP_MS,
    an_id,
    any_batch,
    control,
    data_batch,
    put,
    read_batches,
    refusal,
    sealed,
    snapshot_bytes,
    split,
    verify,
)

WHOLE = snapshot_bytes(an_id())
HEADER_BATCH, FIRST, SECOND, THIRD, FOOTER_BATCH = split(WHOLE)
HEADER = ControlRecord(
    snapshot_header=SnapshotHeader(last_contained_log_timestamp=TIMESTAMP_MS, cluster_id="MkU3OEVBNTcwNTJENDM2Qg")
)


def test_what_the_tests_damage_is_whole(disk: MemoryFileSystem) -> None:
    assert verify(disk, put(disk, WHOLE)).batch_count == len(read_batches(disk, put(disk, WHOLE))) == 3
    assert sealed(control(0, HEADER) + FIRST + SECOND + THIRD, 7) == WHOLE


# --- accidents --------------------------------------------------------------------------------------------------------


def test_every_truncation_is_refused(disk: MemoryFileSystem) -> None:
    for size in range(len(WHOLE)):
        refusal(disk, WHOLE[:size])


def test_every_flipped_bit_is_refused(disk: MemoryFileSystem) -> None:
    for position in some(range(len(WHOLE))):
        for bit in range(8):
            damaged = bytearray(WHOLE)
            damaged[position] ^= 1 << bit
            refusal(disk, bytes(damaged))


def test_every_byte_that_became_zero_is_refused(disk: MemoryFileSystem) -> None:
    """Also every sector, of a snapshot that has more than one."""
    for position, byte in enumerate(WHOLE):
        if byte:
            refusal(disk, WHOLE[:position] + b"\0" + WHOLE[position + 1 :])
    long = snapshot_bytes(an_id(), [[b"%d" % index + bytes(90)] for index in range(40)])
    for position in range(0, len(long), 512):
        zeros = bytes(len(long[position : position + 512]))
        refusal(disk, long[:position] + zeros + long[position + 512 :])


def test_every_byte_that_lacks_and_every_byte_that_came_in_is_refused(disk: MemoryFileSystem) -> None:
    for position in some(range(len(WHOLE))):
        refusal(disk, WHOLE[:position] + WHOLE[position + 1 :])
        refusal(disk, WHOLE[:position] + b"\x2a" + WHOLE[position:])


def test_an_empty_file_is_refused(disk: MemoryFileSystem) -> None:
    assert refusal(disk, b"") == "it ends at byte 0 without a footer"


@pytest.mark.parametrize(
    "tail",
    [b"\0", b"x", bytes(4096), FOOTER_BATCH, THIRD, WHOLE],
    ids=["zero", "x", "page of zeros", "footer", "batch", "snapshot"],
)
def test_bytes_behind_the_footer_are_refused(disk: MemoryFileSystem, tail: bytes) -> None:
    assert refusal(disk, WHOLE + tail) == f"{len(tail)} bytes follow its footer"


@pytest.mark.parametrize(
    "batches",
    [
        [HEADER_BATCH, SECOND, FIRST, THIRD, FOOTER_BATCH],
        [HEADER_BATCH, FIRST, THIRD, SECOND, FOOTER_BATCH],
        [FIRST, HEADER_BATCH, SECOND, THIRD, FOOTER_BATCH],
        [HEADER_BATCH, FIRST, SECOND, FOOTER_BATCH, THIRD],
        [HEADER_BATCH, FIRST, FIRST, SECOND, THIRD, FOOTER_BATCH],
        [HEADER_BATCH, FIRST, THIRD, FOOTER_BATCH],
        [HEADER_BATCH, HEADER_BATCH, FIRST, SECOND, THIRD, FOOTER_BATCH],
        [FIRST, SECOND, THIRD, FOOTER_BATCH],
        [HEADER_BATCH, FIRST, SECOND, THIRD],
        [HEADER_BATCH, FOOTER_BATCH],
        [HEADER_BATCH],
        [FOOTER_BATCH],
    ],
)
def test_batches_that_lack_or_are_swapped_or_come_twice_are_refused(
    disk: MemoryFileSystem, batches: list[bytes]
) -> None:
    refusal(disk, b"".join(batches))


def test_batches_swapped_with_offsets_that_fit_are_refused_for_the_digest(disk: MemoryFileSystem) -> None:
    swapped = [data_batch(1, [b"g", b"", b"h"]), data_batch(4, [b"f" * 20]), data_batch(5, [b"abc", b"de"])]
    data = HEADER_BATCH + b"".join(swapped) + FOOTER_BATCH
    assert refusal(disk, data) == "its digest is not that of its name and content"


@pytest.mark.parametrize(
    "other_id", [an_id(501, 3), an_id(0, 3), an_id(2**63 - 1, 3), an_id(500, 4), an_id(500, 0), an_id(3, 500)]
)
def test_sn06_a_file_renamed_to_another_id_is_refused(disk: MemoryFileSystem, other_id: OffsetAndEpoch) -> None:
    refusal(disk, WHOLE, other_id)


@pytest.mark.parametrize("name", ["copy", "500-3.checkpoint", snapshot_name(an_id()) + ".deleted"])
def test_sn02_a_file_with_a_wrong_name_is_refused_whole_or_not(disk: MemoryFileSystem, name: str) -> None:
    path = put(disk, WHOLE)
    disk.rename(path, f"data/snapshots/{name}")
    with pytest.raises(StorageError, match=name):
        verify(disk, f"data/snapshots/{name}")
    disk.remove(f"data/snapshots/{name}")


def test_a_bad_sector_is_an_error_of_the_disk_and_no_damaged_snapshot(disk: MemoryFileSystem) -> None:
    path = put(disk, WHOLE)
    disk.failing_reads = {path}
    with pytest.raises(StorageError, match=path) as error:
        verify(disk, path)
    disk.failing_reads = set()
    assert not isinstance(error.value, CorruptSnapshot)


# --- files of other programs ------------------------------------------------------------------------------------------


def test_another_version_of_the_header_is_refused_by_its_number(disk: MemoryFileSystem) -> None:
    for version in (1, -1, 2**31 - 1):
        record = ControlRecord(snapshot_header=SnapshotHeader(version=version))
        said = refusal(disk, sealed(control(0, record), 1))
        assert said == f"its version is {version}; this program knows version 0"


@pytest.mark.parametrize("version", [1, -1])
def test_another_version_of_the_footer_is_refused(disk: MemoryFileSystem, version: int) -> None:
    digest = sha256(snapshot_name(an_id()).encode() + HEADER_BATCH).digest()
    record = ControlRecord(snapshot_footer=SnapshotFooter(version=version, digest=digest))
    assert f"of version {version}" in refusal(disk, HEADER_BATCH + control(1, record))


@pytest.mark.parametrize("digest", [b"", bytes(31), bytes(32), bytes(33)], ids=len)
def test_another_digest_is_refused(disk: MemoryFileSystem, digest: bytes) -> None:
    record = ControlRecord(snapshot_footer=SnapshotFooter(digest=digest))
    reason = "digest is not that of" if len(digest) == 32 else f"a digest of {len(digest)} bytes"
    assert reason in refusal(disk, HEADER_BATCH + control(1, record))


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(control(0), id="no record"),
        pytest.param(control(0, HEADER, HEADER), id="two headers"),
        pytest.param(control(0, HEADER, record_count=2), id="two records counted"),
        pytest.param(control(0, ControlRecord()), id="empty record"),
        pytest.param(control(0, ControlRecord(leader_change=LeaderChange(leader_id=1))), id="leader change"),
        pytest.param(control(0, ControlRecord(snapshot_footer=SnapshotFooter(digest=bytes(32)))), id="footer"),
        pytest.param(
            control(0, ControlRecord(snapshot_header=SnapshotHeader(last_contained_log_timestamp=-1))),
            id="negative timestamp",
        ),
        pytest.param(any_batch(b"\xff\xff"), id="no protobuf"),
        pytest.param(any_batch(b"\x0a\x05\x12\x03\x1a\x01\xff"), id="text that is no UTF-8"),
        pytest.param(data_batch(0, [HEADER.SerializeToString()]), id="data batch"),
    ],
)
def test_sn05_what_does_not_begin_with_one_header_is_refused(disk: MemoryFileSystem, first: bytes) -> None:
    assert "header" in refusal(disk, sealed(first, 1))


@pytest.mark.parametrize(
    "last",
    [
        pytest.param(control(1), id="no record"),
        pytest.param(control(1, ControlRecord()), id="empty record"),
        pytest.param(control(1, HEADER), id="header"),
        pytest.param(control(1, ControlRecord(leader_change=LeaderChange(leader_id=1))), id="leader change"),
        pytest.param(any_batch(b"\xff\xff", base_offset=1), id="no protobuf"),
    ],
)
def test_sn04_a_control_batch_that_is_no_footer_is_refused(disk: MemoryFileSystem, last: bytes) -> None:
    assert refusal(disk, sealed(HEADER_BATCH + last, 2)) == "the control batch at offset 1 is no footer"


def test_a_footer_with_a_wrong_number_of_records_is_refused(disk: MemoryFileSystem) -> None:
    record = ControlRecord(
        snapshot_footer=SnapshotFooter(digest=sha256(snapshot_name(an_id()).encode() + HEADER_BATCH).digest())
    )
    for footer in (control(1, record, record_count=2), control(1, record, record)):
        assert "is no footer" in refusal(disk, HEADER_BATCH + footer)


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(any_batch(b"", base_offset=2, attributes=0), id="offset too high"),
        pytest.param(any_batch(b"", base_offset=0, attributes=0), id="offset too low"),
        pytest.param(any_batch(b"", base_offset=-1, attributes=0), id="negative offset"),
        pytest.param(any_batch(b"", base_offset=2**63 - 1, attributes=0), id="largest offset"),
        pytest.param(any_batch(b"", base_offset=1, attributes=0, epoch=2), id="epoch too low"),
        pytest.param(any_batch(b"", base_offset=1, attributes=0, epoch=4), id="epoch too high"),
        pytest.param(any_batch(b"", base_offset=1, attributes=0, epoch=0), id="epoch 0"),
        pytest.param(any_batch(b"", base_offset=1, attributes=0, count=0, delta=-1), id="no records"),
        pytest.param(any_batch(b"", base_offset=1, attributes=0, count=2, delta=0), id="count and delta"),
        pytest.param(any_batch(b"", base_offset=1, attributes=1), id="unknown attribute"),
        pytest.param(any_batch(b"", base_offset=1, attributes=0, magic=0x4B02), id="unknown magic"),
        pytest.param(any_batch(b"", base_offset=1, attributes=0, length=0), id="length 0"),
        pytest.param(
            any_batch(b"", base_offset=1, attributes=0, length=HEADER_BYTES - 1), id="length below that of a header"
        ),
        pytest.param(
            any_batch(b"", base_offset=1, attributes=0, length=HEADER_BYTES + 1), id="length beyond the batch"
        ),
    ],
)
def test_batches_with_wrong_offsets_epochs_or_headers_are_refused(disk: MemoryFileSystem, wrong: bytes) -> None:
    said = refusal(disk, sealed(HEADER_BATCH + wrong, 2))
    assert f"byte {len(HEADER_BATCH)} " in said
    assert "footer" not in said


@pytest.mark.parametrize("length", [BATCH_BYTES_MAX, BATCH_BYTES_MAX + 1, 2**31, 2**32 - 1])
@pytest.mark.parametrize("before", [b"", HEADER_BATCH], ids=["first", "second"])
def test_a_huge_length_is_refused_and_no_memory_is_asked_for(
    disk: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch, before: bytes, length: int
) -> None:
    asked: list[int] = []
    open_file = disk.open_to_read

    def open_watched(path: str) -> File:
        file = open_file(path)
        read_at = file.read_at
        file.read_at = lambda position, count: (asked.append(count), read_at(position, count))[1]  # type: ignore
        return file

    monkeypatch.setattr(disk, "open_to_read", open_watched)
    said = refusal(disk, before + any_batch(bytes(100), length=length, base_offset=1 if before else 0))
    assert str(length) in said
    assert max(asked) <= BATCH_BYTES_MAX


def test_what_came_before_the_damage_is_given_and_then_the_error(disk: MemoryFileSystem) -> None:
    """A caller that keeps batches before the end gets an error at the end."""

    def read_until_it_fails(read: Callable[[], Iterator[object]]) -> int:
        count = 0
        with pytest.raises(CorruptSnapshot):
            for _ in read():
                count += 1
        return count

    path = put(disk, WHOLE[:-1] + b"\0")
    with SnapshotReader(disk, path) as reader:
        assert read_until_it_fails(reader.batches) == 3
        assert read_until_it_fails(reader.batches) == 3


@pytest.mark.parametrize("data", [b"", WHOLE[:-1], WHOLE], ids=["no header", "no footer", "whole"])
def test_the_file_is_let_go_of_whatever_is_wrong_with_it(
    disk: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    path = put(disk, data)
    closed: list[str] = []
    monkeypatch.setattr(MemoryFile, "close", lambda file: closed.append(file.path))
    for read in (verify, read_batches):
        with suppress(CorruptSnapshot):
            read(disk, path)
        assert closed == [path]
        closed.clear()
