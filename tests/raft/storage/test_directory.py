"""Data directories: formatted once, used by one process, refused when they belong to another node."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftbase.checksum import crc32c
from kraftbase.errors import ConfigurationError, DirectoryError
from kraftbase.files.files import FileSystem, read_whole, write_new_file
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.files.posix import PosixFileSystem
from kraftbase.types import NodeId
from kraftbase.uuids import uuid_to_text
from raft.storage.directory import DataDirectory, DirectoryIdentity, decode_meta, encode_meta
from tests.paths import ROOT
from tests.raft.storage.builders import flip
from tests.raft.storage.crash_points import stop_everywhere

CLUSTER, OTHER_CLUSTER = uuid_to_text(UUID(int=1 << 100)), uuid_to_text(UUID(int=2))
NODE = NodeId(1)
META = "data/node/meta.properties"


def format_directory(files: FileSystem, **changes: object) -> DirectoryIdentity:
    arguments: dict[str, object] = {"cluster_id": CLUSTER, "node_id": NODE, **changes}
    return DataDirectory.format(files, "data/node", **arguments)  # type: ignore[arg-type]


@given(st.integers(1, 2**128 - 1), st.integers(0, 2**31 - 1), st.integers(1, 2**128 - 1))
def test_an_identity_survives_its_file(cluster: int, node_id: int, directory: int) -> None:
    identity = DirectoryIdentity(
        cluster_id=uuid_to_text(UUID(int=cluster)), node_id=NodeId(node_id), directory_id=UUID(int=directory)
    )
    assert decode_meta(encode_meta(identity), META) == identity


def test_a_formatted_directory_opens_with_its_identity_and_names_its_parts(files: FileSystem) -> None:
    identity = format_directory(files)
    assert (identity.cluster_id, identity.node_id) == (CLUSTER, 1)
    directory = DataDirectory.open(files, "data/node", cluster_id=CLUSTER, node_id=NODE)
    assert directory.identity == identity
    assert directory.log_path == "data/node/log"
    assert directory.metadata_database_path == "data/node/metadata.db"
    directory.close()
    assert DataDirectory.open(files, "data/node").identity == identity


def test_every_format_makes_another_directory_id() -> None:
    ids = {format_directory(MemoryFileSystem()).directory_id for _ in range(20)}
    assert len(ids) == 20
    assert UUID(int=0) not in ids


def test_a_given_directory_id_is_kept(files: FileSystem) -> None:
    assert format_directory(files, directory_id=UUID(int=5)).directory_id == UUID(int=5)


def test_a_directory_is_formatted_once(files: FileSystem) -> None:
    identity = format_directory(files)
    with pytest.raises(DirectoryError, match="data/node is already formatted, for node 1 of cluster"):
        format_directory(files)
    assert format_directory(files, ignore_formatted=True) == identity
    assert DataDirectory.open(files, "data/node").identity == identity


@pytest.mark.parametrize("ignore_formatted", [True, False])
def test_a_directory_of_another_cluster_or_node_is_not_formatted(files: FileSystem, ignore_formatted: bool) -> None:
    identity = format_directory(files)
    with pytest.raises(DirectoryError, match=f"belongs to cluster {CLUSTER}, not to cluster {OTHER_CLUSTER}"):
        format_directory(files, cluster_id=OTHER_CLUSTER, ignore_formatted=ignore_formatted)
    with pytest.raises(DirectoryError, match="belongs to node 1, not to node 2"):
        format_directory(files, node_id=NodeId(2), ignore_formatted=ignore_formatted)
    assert DataDirectory.open(files, "data/node").identity == identity


def test_a_directory_that_holds_something_else_is_not_formatted(files: FileSystem) -> None:
    files.make_directories("data/node/letters")
    files.open("data/node/photographs", create=True).close()
    with pytest.raises(DirectoryError, match="not empty, it holds letters, photographs"):
        format_directory(files)
    assert not files.exists(META)


@pytest.mark.parametrize(
    "changes",
    [
        {"cluster_id": ""},
        {"cluster_id": "my-cluster"},
        {"cluster_id": uuid_to_text(UUID(int=0))},
        {"node_id": -1},
        {"node_id": 2**31},
        {"directory_id": UUID(int=0)},
    ],
)
def test_ids_that_are_none_are_refused_and_nothing_is_made(files: FileSystem, changes: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        format_directory(files, **changes)
    assert not files.exists("data")


def test_a_directory_that_is_not_formatted_does_not_open_and_is_not_made(files: FileSystem) -> None:
    with pytest.raises(DirectoryError, match=r"data/node is not formatted.*its data is lost.*replacing-a-disk\.md"):
        DataDirectory.open(files, "data/node")
    assert not files.exists("data")
    files.make_directories("data/node")
    with pytest.raises(DirectoryError, match="not formatted"):
        DataDirectory.open(files, "data/node")
    assert files.list_directory("data/node") == []


def test_another_clusters_or_nodes_directory_does_not_open_and_stays_unlocked(files: FileSystem) -> None:
    format_directory(files)
    with pytest.raises(DirectoryError, match=f"belongs to cluster {CLUSTER}, not to cluster {OTHER_CLUSTER}"):
        DataDirectory.open(files, "data/node", cluster_id=OTHER_CLUSTER)
    with pytest.raises(DirectoryError, match="belongs to node 1, not to node 7"):
        DataDirectory.open(files, "data/node", node_id=NodeId(7))
    DataDirectory.open(files, "data/node").close()


def test_a_directory_in_use_neither_opens_nor_formats(files: FileSystem) -> None:
    format_directory(files)
    directory = DataDirectory.open(files, "data/node")
    for attempt in (
        lambda: DataDirectory.open(files, "data/node"),
        lambda: format_directory(files, ignore_formatted=True),
    ):
        with pytest.raises(DirectoryError, match="data/node is in use by another process"):
            attempt()
    directory.close()
    with DataDirectory.open(files, "data/node"):
        pass
    DataDirectory.open(files, "data/node").close()


@pytest.fixture
def other_process(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds a data directory until it is killed."""
    DataDirectory.format(PosixFileSystem(), str(tmp_path / "node"), cluster_id=CLUSTER, node_id=NODE)
    program = (
        "import sys; from kraftbase.files.posix import PosixFileSystem;"
        "from raft.storage.directory import DataDirectory;"
        "directory = DataDirectory.open(PosixFileSystem(), sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "node")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    with process:
        yield process
        process.kill()


def test_a_killed_process_holds_its_directory_no_longer(other_process: subprocess.Popen[str], tmp_path: Path) -> None:
    path = str(tmp_path / "node")
    with pytest.raises(DirectoryError, match="in use by another process"):
        DataDirectory.open(PosixFileSystem(), path)
    other_process.kill()
    other_process.wait()
    DataDirectory.open(PosixFileSystem(), path).close()


@pytest.mark.parametrize("mask", [0x01, 0x20, 0x80, 0xFF])
def test_a_flip_in_any_byte_of_the_meta_file_is_refused(mask: int) -> None:
    files = MemoryFileSystem()
    format_directory(files)
    for position in range(len(read_whole(files, META))):
        flip(files, META, position, mask)
        for attempt in (
            lambda: DataDirectory.open(files, "data/node"),
            lambda: format_directory(files, ignore_formatted=True),
        ):
            with pytest.raises(DirectoryError, match=r"meta\.properties is damaged"):
                attempt()
        flip(files, META, position, mask)
    DataDirectory.open(files, "data/node")


def test_a_cut_meta_file_is_refused() -> None:
    data = encode_meta(format_directory(MemoryFileSystem()))
    for length in range(len(data)):
        with pytest.raises(DirectoryError, match="damaged"):
            decode_meta(data[:length], META)


def with_crc(lines: str) -> bytes:
    return f"{lines}crc32c={crc32c(lines.encode()):08x}\n".encode()


def test_an_unknown_format_version_is_refused_by_name() -> None:
    for lines in ("version=2\nshape=new\n", "version=\n", "other=1\n"):
        with pytest.raises(DirectoryError, match=r"has format version .*; this program knows version 1"):
            decode_meta(with_crc(lines), META)


@pytest.mark.parametrize(
    "lines",
    [
        "version=1\n",
        f"version=1\ncluster.id={CLUSTER}\nnode.id=x\ndirectory.id={CLUSTER}\n",
        f"version=1\ncluster.id={CLUSTER}\nnode.id=-1\ndirectory.id={CLUSTER}\n",
        f"version=1\ncluster.id={CLUSTER}\nnode.id=01\ndirectory.id={CLUSTER}\n",
        f"version=1\ncluster.id=x\nnode.id=1\ndirectory.id={CLUSTER}\n",
        f"version=1\ncluster.id={CLUSTER}\nnode.id=1\ndirectory.id={'A' * 22}\n",
        f"version=1\ncluster.id={CLUSTER}\nnode.id=1\ndirectory.id={CLUSTER}\nmore=1\n",
        f"version=1\nnode.id=1\ncluster.id={CLUSTER}\ndirectory.id={CLUSTER}\n",
    ],
)
def test_a_meta_file_that_makes_no_sense_is_damaged_though_its_crc_is_right(lines: str) -> None:
    with pytest.raises(DirectoryError, match="damaged"):
        decode_meta(with_crc(lines), META)


def test_a_meta_file_with_a_right_crc_and_no_text_is_damaged() -> None:
    lines = b"version=1\n\xff\n"
    with pytest.raises(DirectoryError, match="damaged"):
        decode_meta(lines + b"crc32c=%08x\n" % crc32c(lines), META)


def test_whatever_operation_a_crash_comes_before_formatting_can_be_done_again() -> None:
    def story(files: MemoryFileSystem, told: list[DirectoryIdentity]) -> None:
        told.append(format_directory(files))

    def verify(files: MemoryFileSystem, told: list[DirectoryIdentity]) -> None:
        identity = format_directory(files, ignore_formatted=True)
        assert told in ([], [identity])
        assert DataDirectory.open(files, "data/node").identity == identity

    assert stop_everywhere(lambda files: list[DirectoryIdentity](), story, verify) >= 7


@pytest.mark.parametrize("name", ["log", "snapshots", "quorum-state-0", "metadata.db"])
def test_a_node_without_its_meta_file_is_neither_opened_nor_formatted_anew(name: str) -> None:
    """Formatting it again, or an empty directory in its place, would lose what the node acknowledged."""
    files = MemoryFileSystem()
    files.make_directories("data")
    files.make_directories("data/log")
    path = "log/00000000000000000000.log" if name == "log" else name
    write_new_file(files, f"data/{path}", b"what a node has")
    before = files.list_directory("data")
    for attempt in (
        lambda: DataDirectory.open(files, "data"),
        lambda: DataDirectory.format(files, "data", cluster_id=CLUSTER, node_id=NodeId(1)),
    ):
        with pytest.raises(DirectoryError, match=r"meta\.properties is missing.*Delete nothing"):
            attempt()
    assert files.list_directory("data") == before
