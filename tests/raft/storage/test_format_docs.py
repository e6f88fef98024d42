"""The byte tables and worked examples in docs/formats match the code."""

from __future__ import annotations

import re
from uuid import UUID

from kraftbase.files.files import read_whole
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.types import Epoch, NodeId, Offset
from raft.core.election_state import ElectionState
from raft.core.types import OffsetAndEpoch, ReplicaKey
from raft.storage.batch import HEADER_BYTES, encode_batch, encode_body
from raft.storage.directory import DirectoryIdentity, encode_meta
from raft.storage.frame import HEAD_BYTES
from raft.storage.log_start_file import encode_log_start
from raft.storage.quorum_state import COPY, encode_copy
from tests.paths import ROOT
from tests.raft.storage.builders import BIG, open_log, segment_paths

FORMATS = ROOT / "docs" / "formats"
DIRECTORY_ID = UUID("6f1d9c52-3b0a-4e8f-9a57-0c4d2e81b3f6")


def table(name: str) -> list[tuple[int, int]]:
    """Position and size of each row of the first table with numbers in a document."""
    rows = re.findall(r"^\| (\d+) \| (\d+) \|", (FORMATS / name).read_text(), re.MULTILINE)
    return [(int(position), int(size)) for position, size in rows]


def assert_without_gaps(rows: list[tuple[int, int]], total: int) -> None:
    end = 0
    for position, size in rows:
        assert position == end
        end += size
    assert end == total


def example(name: str) -> bytes:
    """The bytes of a document's worked example, whose lines have their positions."""
    (block,) = re.findall(r"```hex\n(.*?)```", (FORMATS / name).read_text(), re.DOTALL)
    data = b""
    for line in block.splitlines():
        position, hexadecimal = line.split()[:2]
        assert int(position) == len(data), line
        data += bytes.fromhex(hexadecimal)
    return data


def example_positions(name: str) -> list[int]:
    (block,) = re.findall(r"```hex\n(.*?)```", (FORMATS / name).read_text(), re.DOTALL)
    return [int(line.split()[0]) for line in block.splitlines()]


def test_the_batch_in_the_document_is_the_one_that_the_code_makes() -> None:
    batch = encode_batch(Offset(41), Epoch(7), encode_body([b"abc", b"de"]), 2, 1_700_000_000_000)
    assert example("batch.md") == batch.data
    assert_without_gaps(table("batch.md"), HEADER_BYTES)
    assert example_positions("batch.md")[:10] == [position for position, _ in table("batch.md")]


def test_the_segment_in_the_document_is_the_one_that_the_code_writes() -> None:
    files = MemoryFileSystem()
    log = open_log(files, BIG)
    log.append([encode_batch(Offset(0), Epoch(1), encode_body([b"abc", b"de"]), 2, 1_700_000_000_000)])
    log.flush()
    log.write_marker()
    log.close()
    assert example("log.md") == read_whole(files, segment_paths(files)[0])
    assert_without_gaps(table("log.md"), HEAD_BYTES)
    assert example_positions("log.md")[:9] == [position for position, _ in table("log.md")]


def test_the_quorum_state_in_the_document_is_the_one_that_the_code_makes() -> None:
    state = ElectionState(epoch=Epoch(7), voted_key=ReplicaKey(NodeId(2), DIRECTORY_ID))
    assert example("quorum-state.md") == encode_copy(5, state)
    assert_without_gaps(table("quorum-state.md"), COPY.size)
    assert example_positions("quorum-state.md") == [position for position, _ in table("quorum-state.md")]


def test_the_meta_file_in_the_document_is_the_one_that_the_code_makes() -> None:
    identity = DirectoryIdentity(cluster_id="MkU3OEVBNTcwNTJENDM2Qg", node_id=NodeId(1), directory_id=DIRECTORY_ID)
    (block,) = re.findall(r"```properties\n(.*?)```", (FORMATS / "directory.md").read_text(), re.DOTALL)
    assert block.encode() == encode_meta(identity)


def test_the_log_start_in_the_document_is_the_one_that_the_code_makes() -> None:
    (block,) = re.findall(r"```properties\n(.*?)```", (FORMATS / "log.md").read_text(), re.DOTALL)
    assert block.encode() == encode_log_start(OffsetAndEpoch(epoch=Epoch(7), offset=Offset(41)))
