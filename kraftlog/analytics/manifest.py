"""The manifest: which files make up an export (docs/formats/export.md describes every field).

Each version is a file of its own, `_manifest/<version>.json`, that lists all files; the highest version counts. A file
that no manifest lists is not part of the export. Versions are created, never changed: of two exports that publish the
same version one gets an error.

A manifest is checked when it is read: one that contradicts itself is refused as a whole.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from kraftbase.checksum import extend_crc32c
from kraftbase.errors import CorruptLog, DirectoryError
from kraftbase.types import Epoch, Offset
from kraftlog.analytics.files import ExportFiles, storage_errors, write_and_publish
from kraftlog.analytics.schema import SCHEMA_VERSION

FORMAT: Final = "kraftlog-export"
FORMAT_VERSION: Final = 1
MANIFEST_DIRECTORY: Final = "_manifest"
LOG_DIRECTORY: Final = "log"

_MANIFEST_NAME: Final = re.compile(r"(\d{20})\.json")
_CHUNK_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """One Parquet file: the rows of the offsets from `start_offset` to `end_offset` (exclusive), all of one epoch."""

    start_offset: Offset
    end_offset: Offset
    epoch: Epoch
    rows: int
    bytes: int
    crc32c: int
    schema_version: int
    min_timestamp_ms: int
    max_timestamp_ms: int

    @property
    def name(self) -> str:
        """Its path in the export's directory, which follows from its offsets and its epoch."""
        return f"{LOG_DIRECTORY}/{file_name(self.start_offset, self.end_offset, self.epoch)}"


@dataclass(frozen=True, slots=True)
class Manifest:
    """One version of an export: the offsets from `start_offset` to `end_offset` (exclusive), without gaps."""

    version: int
    cluster_id: str
    start_offset: Offset
    """The log start offset at the export's first run, where the export begins."""
    log_start_offset: Offset
    """The log start offset when this version was written."""
    high_watermark: Offset
    """The high watermark when this version was written. The export may not have reached it."""
    files: tuple[ExportedFile, ...] = ()

    @property
    def end_offset(self) -> Offset:
        """The first offset that is not exported."""
        return self.files[-1].end_offset if self.files else self.start_offset

    @property
    def rows(self) -> int:
        """How many rows the files have together: one for each offset."""
        return self.end_offset - self.start_offset

    def with_file(self, file: ExportedFile) -> Manifest:
        """Return the next version of the manifest, with one more file."""
        return replace(self, version=self.version + 1, files=(*self.files, file))


def file_name(start_offset: Offset, end_offset: Offset, epoch: Epoch) -> str:
    """The name of the file with these offsets, all of one epoch."""
    return f"{start_offset:020}-{end_offset:020}-{epoch}.parquet"


def publish_manifest(files: ExportFiles, directory: Path, manifest: Manifest) -> None:
    """Write a new version, durably. Raises DirectoryError if another export has published that version."""
    write_and_publish(files, directory / MANIFEST_DIRECTORY / f"{manifest.version:020}.json", encode(manifest))


def latest_manifest(directory: Path) -> Manifest | None:
    """The current manifest, None if there is none yet. Raises CorruptLog or DirectoryError if it is refused."""
    path = directory / MANIFEST_DIRECTORY
    with storage_errors(path, "list"):
        names = [entry.name for entry in path.iterdir()] if path.is_dir() else []
    versions = [int(match.group(1)) for name in names if (match := _MANIFEST_NAME.fullmatch(name))]
    return _read(path / f"{max(versions):020}.json", max(versions)) if versions else None


def read_manifest(directory: Path) -> Manifest:
    """The current manifest. Raises DirectoryError if there is no export in the directory."""
    manifest = latest_manifest(directory)
    if manifest is None:
        raise DirectoryError(f"there is no export in {directory}; make one: kraftlog export --to {directory}")
    return manifest


def verify(directory: Path) -> Manifest:
    """Return the manifest after reading every byte of every file. Raises CorruptLog, which names a damaged file."""
    manifest = read_manifest(directory)
    check_files(directory, manifest)
    for file in manifest.files:
        path = directory / file.name
        size, crc = checksum(path)
        if (size, crc) != (file.bytes, file.crc32c):
            raise CorruptLog(
                f"{path} is damaged: it has {size} bytes with CRC-32C {crc:08x}, but {file.bytes} bytes with"
                f" {file.crc32c:08x} were written; export again to an empty directory"
            )
    return manifest


def check_files(directory: Path, manifest: Manifest) -> None:
    """Raise CorruptLog, which names the file, if a listed file is missing or of another size. Reads no file."""
    for file in manifest.files:
        path = directory / file.name
        with storage_errors(path, "read"):
            size = path.stat().st_size if path.is_file() else None
        if size is None:
            raise CorruptLog(f"{path} is missing although the manifest lists it; export again to an empty directory")
        if size != file.bytes:
            raise CorruptLog(
                f"{path} is damaged: it has {size} bytes, but {file.bytes} were written; export again to an empty"
                " directory"
            )


def checksum(path: Path) -> tuple[int, int]:
    """The size of a file in bytes and its CRC-32C."""
    size = crc = 0
    with storage_errors(path, "read"), path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            size += len(chunk)
            crc = extend_crc32c(crc, chunk)
    return size, crc


def encode(manifest: Manifest) -> bytes:
    """The manifest as JSON, one line for each file."""
    head = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "version": manifest.version,
        "cluster_id": manifest.cluster_id,
        "start_offset": manifest.start_offset,
        "end_offset": manifest.end_offset,
        "log_start_offset": manifest.log_start_offset,
        "high_watermark": manifest.high_watermark,
    }
    lines = [json.dumps({"file": file.name, **asdict(file), "crc32c": f"{file.crc32c:08x}"}) for file in manifest.files]
    listed = ",\n".join(lines)
    return f'{json.dumps(head)[:-1]}, "files": [\n{listed}\n]}}\n'.encode()


def decode(data: bytes, name: str) -> Manifest:
    """The manifest that `encode` encoded as `data`.

    Raises DirectoryError for a format version that is not known, CorruptLog for everything else that is wrong.
    """
    try:
        value = json.loads(data)
    except ValueError as error:
        raise CorruptLog(f"{name} is not JSON: {error}") from None
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise CorruptLog(f"{name} is not a manifest of an export")
    if value.get("format_version") != FORMAT_VERSION:
        raise DirectoryError(
            f"{name} has format version {value.get('format_version')!r}, not {FORMAT_VERSION}: use a newer kraftlog"
        )
    entries = value.get("files")
    cluster_id = value.get("cluster_id")
    if not isinstance(entries, list) or not isinstance(cluster_id, str):
        raise CorruptLog(f"{name} lacks its files or its cluster id")
    manifest = Manifest(
        version=_number(value, "version", name),
        cluster_id=cluster_id,
        start_offset=Offset(_number(value, "start_offset", name)),
        log_start_offset=Offset(_number(value, "log_start_offset", name)),
        high_watermark=Offset(_number(value, "high_watermark", name)),
        files=tuple(_decode_file(entry, name) for entry in entries),
    )
    _check_contiguous(manifest, name)
    if manifest.end_offset != _number(value, "end_offset", name):
        raise CorruptLog(f"{name} ends at {value['end_offset']}, but its files end at {manifest.end_offset}")
    return manifest


def _read(path: Path, version: int) -> Manifest:
    with storage_errors(path, "read"):
        data = path.read_bytes()
    manifest = decode(data, str(path))
    if manifest.version != version:
        raise CorruptLog(f"{path} contains version {manifest.version}")
    return manifest


def _decode_file(entry: Any, name: str) -> ExportedFile:
    if not isinstance(entry, dict):
        raise CorruptLog(f"{name} lists {entry!r}, which is not a file")
    numbers = {field.name: _number(entry, field.name, name) for field in fields(ExportedFile) if field.name != "crc32c"}
    crc = entry.get("crc32c")
    if not isinstance(crc, str) or not re.fullmatch("[0-9a-f]{8}", crc):
        raise CorruptLog(f"{name} has the CRC-32C {crc!r}, which is malformed")
    file = ExportedFile(**numbers, crc32c=int(crc, 16))  # type: ignore[arg-type]
    if entry.get("file") != file.name:
        raise CorruptLog(f"{name} has the file name {entry.get('file')!r}, which must be {file.name}")
    if file.schema_version > SCHEMA_VERSION:
        raise DirectoryError(f"{name} lists a file of schema version {file.schema_version}: use a newer kraftlog")
    return file


def _check_contiguous(manifest: Manifest, name: str) -> None:
    offset, epoch = manifest.start_offset, 0
    for file in manifest.files:
        if file.start_offset != offset or file.rows != file.end_offset - offset or file.rows < 1 or file.epoch < epoch:
            raise CorruptLog(
                f"{name} lists {file.name} where the files before it end at offset {offset}, epoch {epoch}"
            )
        offset, epoch = file.end_offset, file.epoch


def _number(value: dict[str, Any], key: str, name: str) -> int:
    number = value.get(key)
    if type(number) is not int or number < 0:
        raise CorruptLog(f"{name} has {number!r} for {key}, which must be a number of at least 0")
    return number
