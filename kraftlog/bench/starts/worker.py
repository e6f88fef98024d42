"""A process that makes a log directory, or opens one and prints the seconds and the number of logs.

    python worker.py make DIR PARTITIONS SEGMENTS clean|killed
    python worker.py open DIR

It runs with PYTHONPATH set to the measured version, so it uses only functions that both versions have.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

from kraftbase.files.posix import PosixFileSystem
from kraftbase.partition import TopicPartition
from kraftbase.runtime import AsyncioRuntime
from kraftlog.kafka.record_batch import encode_batch
from kraftlog.kafka.records import Record
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.log_manager import LogManager
from kraftlog.storage.slices import run_at_once

CLUSTER_ID = "kraftlogBenchStartsAAA"
BATCHES = 10
VALUE_BYTES = 1_000
FLUSHED_AT_ONCE = 100


def opened(path: str) -> LogManager:
    """Open the log directory with its logs."""
    return LogManager.open(
        PosixFileSystem(), [path], AsyncioRuntime(ThreadPoolExecutor(1)), cluster_id=CLUSTER_ID, node_id=1,
        config_of=lambda partition: PartitionLogConfig(),
    )  # fmt: skip


def make(path: str, partitions: int, segments: int, end: str) -> None:
    """Make logs with this many segments each, and end like a broker that shuts down or is killed."""
    manager = opened(path)
    now_ms = time.time_ns() // 1_000_000
    record = Record(0, now_ms, None, bytes(VALUE_BYTES))
    for number in range(partitions):
        log = manager.create_log(TopicPartition("starts", number), UUID(int=1_000 + number), PartitionLogConfig())
        for segment in range(segments):
            if segment:
                log.roll(now_ms)
            for _ in range(BATCHES):
                log.append_as_leader(encode_batch([record], base_offset=0, partition_leader_epoch=0), 0, now_ms)
            if segment % FLUSHED_AT_ONCE == 0:
                log.flush()
        log.flush()
    if end == "clean":
        manager.close(1)
    else:
        for directory in manager.directories:
            run_at_once(directory.checkpoint())


async def main(arguments: list[str]) -> None:
    """Make or open a log directory, according to the arguments."""
    if arguments[0] == "make":
        make(arguments[1], int(arguments[2]), int(arguments[3]), arguments[4])
    else:
        start = time.perf_counter()
        manager = opened(arguments[1])
        seconds = time.perf_counter() - start
        count = sum(len(directory.logs) for directory in manager.directories)
        sys.stdout.write(f"{seconds:.4f} {count}\n")
        sys.stdout.flush()
    os._exit(0)  # as if it were killed


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
