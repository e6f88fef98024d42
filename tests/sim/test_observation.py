"""What the checkers see of a disk: the same whether it is looked at after every change or once at the end."""

from __future__ import annotations

from random import Random

import pytest

from raft.core.election import ElectionState
from raft.core.types import Epoch, NodeId, Offset, ReplicaKey
from raft.storage.batch import encode_batch, encode_body
from raft.storage.memory import MemoryFileSystem
from raft.storage.quorum_state import QuorumStateStore
from raft.storage.segmented_log import LogConfig, SegmentedLog
from sim.observation import DurableLog, durable_election_state
from tests.raft.storage.builders import all_batches

SMALL = LogConfig(segment_bytes=400, preallocate_bytes=64, reserve_bytes=0, tail_cache_bytes=0)


def append(log: SegmentedLog, epoch: int) -> None:
    log.append((encode_batch(log.log_end_offset, Epoch(epoch), encode_body([b"record"]), 1, 0),))


def test_only_what_is_synced_is_seen() -> None:
    files = MemoryFileSystem()
    log = SegmentedLog.open(files, "log", config=SMALL)
    seen = DurableLog()
    append(log, 1)
    seen.refresh(files, "log")
    assert seen.end_offset == 0
    log.flush()
    seen.refresh(files, "log")
    assert seen.end_offset == 1
    assert seen.batches == list(log.read_batches(Offset(0), 1_000))


@pytest.mark.parametrize("seed", range(30))
def test_looking_after_every_change_is_the_same_as_looking_once(seed: int) -> None:
    random = Random(seed)
    files = MemoryFileSystem()
    log = SegmentedLog.open(files, "log", config=SMALL)
    often = DurableLog()
    epoch = 1
    for _ in range(80):
        match random.randrange(10):
            case 0 | 1 | 2 | 3:
                append(log, epoch)
            case 4 | 5 | 6:
                log.flush()
            case 7:
                log.truncate(Offset(random.randint(max(0, log.log_end_offset - 3), log.log_end_offset)))
                epoch += 1
            case 8:
                log.flush()
                log.write_marker()
            case 9:
                files.crash(random=random)
                log = SegmentedLog.open(files, "log", config=SMALL)
        often.refresh(files, "log")
        assert often.batches == all_batches(log)[: len(often.batches)]
        assert often.end_offset >= log.flushed_end_offset
    once = DurableLog()
    once.refresh(files, "log")
    assert once.batches == often.batches


def test_a_batch_that_was_cut_and_written_anew_counts_as_changed() -> None:
    files = MemoryFileSystem()
    log = SegmentedLog.open(files, "log", config=SMALL)
    seen = DurableLog()
    for _ in range(3):
        append(log, 1)
    log.flush()
    seen.refresh(files, "log")
    log.truncate(Offset(1))
    append(log, 2)
    log.flush()
    seen.refresh(files, "log")
    assert [batch.epoch for batch in seen.batches] == [1, 2]
    assert seen.first_changed <= 1


def test_damage_ends_what_is_seen() -> None:
    files = MemoryFileSystem()
    log = SegmentedLog.open(files, "log", config=LogConfig(preallocate_bytes=64, reserve_bytes=0))
    for _ in range(3):
        append(log, 1)
    log.flush()
    seen = DurableLog()
    seen.refresh(files, "log")
    name, file = next(iter(files.durable_files("log").items()))
    position = len(file.data) // 2
    files.damage(f"log/{name}", position, bytes([file.data[position] ^ 1]))
    seen.refresh(files, "log")
    assert seen.end_offset < 3


def test_the_durable_vote_is_the_one_that_was_synced() -> None:
    files = MemoryFileSystem()
    files.make_directories("node")
    store = QuorumStateStore(files, "node")
    store.load()
    assert durable_election_state(files, "node") is None
    voted = ElectionState(epoch=Epoch(3), voted_key=ReplicaKey(NodeId(2)))
    store.save(voted)
    assert durable_election_state(files, "node") == voted
