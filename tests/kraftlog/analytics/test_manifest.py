"""The manifest: what is written is what is read, and nothing that does not fit together is believed."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kraftbase.errors import CorruptLog, DirectoryError, KraftlogError
from kraftbase.types import Epoch, Offset
from kraftlog.analytics.files import PosixFiles
from kraftlog.analytics.manifest import (
    ExportedFile,
    Manifest,
    decode,
    encode,
    latest_manifest,
    publish_manifest,
    read_manifest,
)


def exported(start: int, end: int, epoch: int) -> ExportedFile:
    return ExportedFile(Offset(start), Offset(end), Epoch(epoch), end - start, 1234, 0xABC, 1, 1000, 2000)


MANIFEST = Manifest(3, "cluster", Offset(5), Offset(0), Offset(30), (exported(5, 20, 1), exported(20, 25, 2)))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "_manifest").mkdir()
    return tmp_path


def test_a_manifest_reads_as_it_was_written():
    assert decode(encode(MANIFEST), "name") == MANIFEST


def test_an_export_ends_where_its_last_file_ends():
    assert (MANIFEST.start_offset, MANIFEST.end_offset, MANIFEST.rows) == (5, 25, 20)
    assert Manifest(1, "cluster", Offset(5), Offset(5), Offset(5)).end_offset == 5


def test_the_highest_version_counts(directory):
    assert latest_manifest(directory) is None
    for version in (9, 10, 1):
        publish_manifest(PosixFiles(), directory, Manifest(version, "cluster", Offset(0), Offset(0), Offset(0)))
    (directory / "_manifest" / "_tmp-00000000000000000099.json").write_text("half a mani")
    assert read_manifest(directory).version == 10


def test_a_directory_without_an_export_is_said_to_be_one(directory):
    with pytest.raises(DirectoryError, match=r"no export in .*; make one: kraftlog export"):
        read_manifest(directory)


def test_a_version_is_published_once_and_stays(directory):
    publish_manifest(PosixFiles(), directory, MANIFEST)
    before = (directory / "_manifest" / f"{3:020}.json").read_bytes()
    with pytest.raises(DirectoryError, match="another export writes to the same directory"):
        publish_manifest(PosixFiles(), directory, Manifest(3, "other", Offset(0), Offset(0), Offset(0)))
    assert [path.name for path in (directory / "_manifest").iterdir()] == [f"{3:020}.json"]
    assert (directory / "_manifest" / f"{3:020}.json").read_bytes() == before


def test_of_many_who_publish_a_version_one_wins(directory):
    def attempt(number: int) -> int | None:
        contender = Manifest(1, f"cluster-{number}", Offset(0), Offset(0), Offset(0))
        try:
            publish_manifest(_OwnTemporaryNames(number), directory, contender)
        except DirectoryError:
            return None
        return number

    with ThreadPoolExecutor(8) as threads:
        winners = [number for number in threads.map(attempt, range(8)) if number is not None]
    assert len(winners) == 1
    assert read_manifest(directory).cluster_id == f"cluster-{winners[0]}"


class _OwnTemporaryNames(PosixFiles):
    """As if each exporter had its own temporary name, so that all of them get to the decisive step."""

    def __init__(self, number: int) -> None:
        self._number = number

    def create(self, path):
        return super().create(path.with_name(f"{path.name}.{self._number}"))

    def link(self, path, name):
        return super().link(path.with_name(f"{path.name}.{self._number}"), name)


def changed(**fields) -> bytes:
    return json.dumps(json.loads(encode(MANIFEST)) | fields).encode()


def with_second_file(**fields) -> bytes:
    value = json.loads(encode(MANIFEST))
    value["files"][1] |= fields
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is not JSON"),
        (b"{}", "is not a manifest"),
        (b"[]", "is not a manifest"),
        (changed(format_version=2), "format version 2"),
        (changed(cluster_id=7), "lacks its files or its cluster id"),
        (changed(files=None), "lacks its files"),
        (changed(files=[1]), "lists 1, which is not a file"),
        (changed(end_offset=26), "ends at 26, but its files end at 25"),
        (changed(start_offset=4), r"files before it end at offset 4"),
        (changed(high_watermark="30"), "'30' for high_watermark"),
        (changed(version=True), "True for version"),
        (with_second_file(file="../../etc/passwd"), "has the file name '../../etc/passwd', which must be log/"),
        (with_second_file(rows=4), "files before it end at offset 20"),
        (with_second_file(epoch=0, file=f"log/{20:020}-{25:020}-0.parquet"), "epoch 1"),
        (with_second_file(crc32c="xyz"), "CRC-32C 'xyz'"),
        (with_second_file(bytes=-1), "-1 for bytes"),
        (with_second_file(schema_version=2), "schema version 2: use a newer kraftlog"),
    ],
)
def test_a_manifest_that_does_not_fit_together_is_refused(data, reason):
    with pytest.raises(KraftlogError, match=reason) as refused:
        decode(data, "the manifest")
    assert type(refused.value) is (DirectoryError if "newer" in str(refused.value) else CorruptLog)


def test_a_manifest_under_the_name_of_another_version_is_refused(directory):
    (directory / "_manifest" / f"{4:020}.json").write_bytes(encode(MANIFEST))
    with pytest.raises(CorruptLog, match="contains version 3"):
        latest_manifest(directory)
