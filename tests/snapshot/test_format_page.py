"""docs/formats/snapshot.md matches the code: names, fields, numbers, digest, steps, records and an example."""

from __future__ import annotations

import re
from contextlib import closing
from hashlib import sha256
from pathlib import Path

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from kraftbase.files.files import read_whole
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.files.posix import PosixFileSystem
from kraftpb.v1.batch_pb2 import SnapshotFooter, SnapshotHeader
from kraftpb.v1.metadata_pb2 import AppliedStateRecord, MetadataBatch
from raft.storage.batch import HEADER, MAX_OFFSET, batch_body
from snapshot.format import BATCH_BYTES_MAX, DIGEST_BYTES, VERSION
from snapshot.log_start_policy import SNAPSHOTS_KEPT_MAX
from snapshot.names import is_leftover, parse_snapshot_name, part_name, snapshot_name
from snapshot.store import SnapshotStore
from snapshot.writer import FLUSH_BYTES, SnapshotWriter
from statemachine.store.image import RECORDS_PER_BATCH_MAX
from statemachine.store.metadata_tables import DIGEST_BYTES as STATE_DIGEST_BYTES
from statemachine.store.snapshot_worker import take_snapshot
from statemachine.store.store import MetadataStore
from tests.paths import ROOT
from tests.snapshot.builders import HEADER_OF_TESTS, an_id, open_store, put, verify, write_snapshot
from tests.statemachine.builders import CLUSTER_ID, batch, broker, config, partition, topic

FORMATS = ROOT / "docs" / "formats"
PAGE = (FORMATS / "snapshot.md").read_text()
EXAMPLE_ID = an_id(43, 7)


def section(title: str) -> str:
    """The text under a heading."""
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def example() -> bytes:
    """The bytes of the worked example, whose lines have their positions."""
    data = b""
    for line in re.findall(r"```hex\n(.*?)```", PAGE, re.DOTALL)[0].splitlines():
        position, hexadecimal = line.split()[:2]
        assert int(position) == len(data), line
        data += bytes.fromhex(hexadecimal)
    return data


def documented_fields(text: str) -> list[tuple[int, str, str]]:
    """Number, type and name of each row of a table of fields."""
    rows = re.findall(r"^\| (\d+) \| (\w+) \| `(\w+)` \|", text, re.MULTILINE)
    return [(int(number), kind, name) for number, kind, name in rows]


def fields_of(descriptor: Descriptor) -> list[tuple[int, str, str]]:
    kinds = {
        FieldDescriptor.TYPE_INT32: "int32",
        FieldDescriptor.TYPE_INT64: "int64",
        FieldDescriptor.TYPE_STRING: "string",
        FieldDescriptor.TYPE_BYTES: "bytes",
    }
    return [(field.number, kinds[field.type], field.name) for field in descriptor.fields]


def test_the_example_is_what_the_writer_writes_and_the_reader_takes() -> None:
    files = MemoryFileSystem()
    path = write_snapshot(open_store(files), EXAMPLE_ID, [[b"abc", b"de"]])
    assert path.endswith(f"/{snapshot_name(EXAMPLE_ID)}")
    assert read_whole(files, path) == example()
    assert f"`{snapshot_name(EXAMPLE_ID)}`, with one batch" in section("Example")
    assert verify(files, put(files, example(), EXAMPLE_ID)).header == HEADER_OF_TESTS


def test_the_example_names_the_lengths_and_the_texts_that_are_there() -> None:
    data = example()
    lengths = []
    while data:
        lengths.append(HEADER.unpack_from(data)[1])
        data = data[lengths[-1] :]
    assert lengths == [int(number) for number in re.findall(r"length: (\d+)", section("Example"))]
    assert f'"{HEADER_OF_TESTS.cluster_id}"' in section("Example")
    assert str(HEADER_OF_TESTS.last_contained_log_timestamp_ms) in section("Example")


def test_the_command_shown_gives_the_digest_of_the_example() -> None:
    shown = re.search(r"\(printf (\S+); head -c (\d+) (\S+)\) \| sha256sum", section("The digest"))
    assert shown is not None
    name, before_footer = shown[1], int(shown[2])
    assert name == shown[3] == snapshot_name(EXAMPLE_ID)
    assert f"{len(name)} bytes" in section("The digest")
    assert f"begins at byte {before_footer}" in section("The digest")
    assert sha256(name.encode() + example()[:before_footer]).digest() == example()[-DIGEST_BYTES:]
    assert f"\n{before_footer}  " in section("Example")


def test_the_fields_of_header_and_footer_are_documented() -> None:
    header, footer = re.split(r"The fields of `snapshot_footer`", section("The file"))
    assert documented_fields(header) == fields_of(SnapshotHeader.DESCRIPTOR)
    assert documented_fields(footer) == fields_of(SnapshotFooter.DESCRIPTOR)
    assert len(re.findall(rf"\| `version` \| {VERSION} \|", PAGE)) == 2
    assert f"| {DIGEST_BYTES} bytes" in footer
    assert f"this page is version {VERSION}." in section("Versions")


def test_the_fields_of_the_applied_state_are_documented() -> None:
    text = section("What a snapshot of the metadata holds")
    assert documented_fields(text) == fields_of(AppliedStateRecord.DESCRIPTOR)
    assert text.count(f"{STATE_DIGEST_BYTES} bytes") == 2


def test_the_numbers_on_the_page_are_the_codes() -> None:
    assert f"{BATCH_BYTES_MAX:,} bytes ({BATCH_BYTES_MAX // 2**20} MiB)" in PAGE
    assert set(re.findall(r"(\d+)\s+MiB", section("What is refused"))) == {str(BATCH_BYTES_MAX // 2**20)}
    assert f"whenever {FLUSH_BYTES // 2**20} MiB more are written" in PAGE
    assert f"most {RECORDS_PER_BATCH_MAX:,} records" in PAGE
    assert f"Of the others at most {SNAPSHOTS_KEPT_MAX} stay" in PAGE


def test_sn02_the_names_on_the_page_are_the_codes() -> None:
    patterns = re.findall(r"^\| `(<end offset.*?)` \|", section("Names"), re.MULTILINE)
    numbers = {"<end offset, 20 digits>": "0" * 17 + "500", "<epoch, 10 digits>": "0000000003"}
    made = []
    for pattern in patterns:
        for words, value in {**numbers, "<hexadecimal digits>": "c0ffee"}.items():
            pattern = pattern.replace(words, value)
        made.append(pattern)
    finished, part, deleted = made
    assert finished == snapshot_name(an_id()) and f"`{finished}` contains everything below offset 500" in PAGE
    assert part == part_name(an_id(), "c0ffee") and is_leftover(part)
    assert is_leftover(deleted) and parse_snapshot_name(deleted) is None
    assert "at most 2^63 - 1, the epoch at most 2^31 - 1" in PAGE
    assert parse_snapshot_name(snapshot_name(an_id(MAX_OFFSET, 2**31 - 1))) == an_id(MAX_OFFSET, 2**31 - 1)
    assert parse_snapshot_name(snapshot_name(an_id(MAX_OFFSET + 1, 3))) is None
    assert parse_snapshot_name(snapshot_name(an_id(500, 2**31))) is None


OPERATIONS = {
    "make it read-only": "make_read_only",
    "make": "create",
    "write": "write_at",
    "`fsync` the file": "fsync",
    "rename": "rename",
    "`fsync` the directory": "fsync_directory",
    "remove": "remove",
}
"""The page's words for the operations of a file system."""


def documented_steps(operation: str) -> list[str]:
    """The steps of an operation of the life cycle, in order."""
    row = re.search(rf"^\| {operation} \| (.*) \|$", section("Life cycle"), re.MULTILINE)
    assert row is not None
    return [OPERATIONS[step] for step in re.findall("|".join(OPERATIONS), row[1])]


def test_the_steps_of_the_life_cycle_are_those_of_the_page() -> None:
    files = MemoryFileSystem()
    store = open_store(files)
    done: list[str] = []
    files.before_operation = lambda operation, _: done.append(operation)

    def begin() -> SnapshotWriter:
        writer = store.create(an_id(), HEADER_OF_TESTS)
        assert writer is not None
        return writer

    def expect(operation: str) -> None:
        assert done == documented_steps(operation)
        done.clear()

    abandoned = begin()
    expect("begin")
    abandoned.append(b"", 1)
    expect("append")
    abandoned.close()
    expect("close without freeze")
    with begin() as writer:
        expect("begin")
        writer.freeze()
        expect("freeze")
    assert done == []
    store.delete(an_id())
    expect("delete")
    store.remove_deleted()
    expect("remove")


def test_the_records_of_a_metadata_snapshot_are_in_the_order_of_the_page(tmp_path: Path) -> None:
    snapshots = SnapshotStore(PosixFileSystem(), str(tmp_path / "snapshots"))
    first = [config("b", "x", "1"), topic("b", 2), partition(2, 1), partition(2, 0), broker(2), topic("a", 1)]
    second = [config("a", "y", "1"), partition(1), broker(1), config("a", "x", "1"), config("1", "z", "1", 4)]
    with closing(MetadataStore.open(tmp_path / "metadata.db", CLUSTER_ID)) as store:
        store.apply([batch(0, first, epoch=1), batch(6, second, epoch=2)])
        taken = take_snapshot(store.path, snapshots)
        digest = bytes.fromhex(store.applied.digest)
    with snapshots.open(taken.snapshot_id) as reader:
        (body,) = [batch_body(found) for found in reader.batches()]
    records = MetadataBatch.FromString(body).records
    kinds = [str(record.WhichOneof("record")) for record in records]
    assert list(dict.fromkeys(kinds)) == re.findall(r"^\| \d \| `(\w+)` \| [a-z ,]+ \|$", PAGE, re.MULTILINE)
    assert (records[0].applied_state.digest, kinds.count("applied_state")) == (digest, 1)
    assert [record.register_broker.broker_id for record in records[1:3]] == [1, 2]
    assert [record.topic.name for record in records[3:5]] == ["a", "b"]
    assert [(record.partition.topic_id[-1], record.partition.partition_id) for record in records[5:8]] == [
        (records[3].topic.topic_id[-1], 0),
        (records[4].topic.topic_id[-1], 0),
        (records[4].topic.topic_id[-1], 1),
    ]
    configs = [record.config for record in records[8:]]
    assert [(found.resource_type, found.resource_name, found.name) for found in configs] == [
        (2, "a", "x"),
        (2, "a", "y"),
        (2, "b", "x"),
        (4, "1", "z"),
    ]


def test_the_page_of_the_data_directory_lists_the_snapshots() -> None:
    assert re.search(r"^snapshots/ .*: snapshot\.md$", (FORMATS / "directory.md").read_text(), re.MULTILINE)


def test_the_pages_that_are_referred_to_are_there() -> None:
    for name in re.findall(r"\]\(([\w.-]+\.md)\)", PAGE):
        assert (FORMATS / name).exists()
