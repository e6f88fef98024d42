"""Transcripts of the controller: `transcripts/*.txt`, rewritten by `pytest --rewrite-transcripts`.

The controller is active over a log in memory, with brokers 1, 2 and 3. Offsets are counted from there (`+0`). How to
write a transcript: `tests.transcripts`. The commands:

    create a b                     submit the creation of topics; more submissions may follow before there is an answer
    delete a
    commit                         everything that is in the log
    commit, lose leadership        both, before this node has applied what is committed
    lose leadership                another node leads; what is not committed is cut
    lose leadership, log stays     another node leads, and commits it
    lead                           win the next election
    log                            the records of the log from +0 on, and how far it is committed
    topics                         the topics that this node's database has
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftpb.v1.admin_pb2 import Operation, OperationResult
from kraftpb.v1.metadata_pb2 import MetadataBatch, MetadataRecord
from raft.listener import CommittedBatch
from statemachine.query import metadata_queries
from tests import transcripts
from tests.statemachine.builders import create, delete
from tests.statemachine.conftest import Bench, errors
from tests.statemachine.waiting import turns, until

FILES = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


class Commands:
    """One file's."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._start_offset = bench.log.log_end_offset
        self._was_active = bench.controller.is_active
        self._lines: list[str] = []

    async def run(self, line: str) -> list[str]:
        """Carry out one command, and everything that follows from it."""
        bench, log = self._bench, self._bench.log
        end_offset = log.log_end_offset
        match line.split():
            case ["create", *names]:
                self._submit(line, create(*names))
            case ["delete", *names]:
                self._submit(line, delete(*names))
            case ["commit"]:
                log.commit()
            case ["commit,", "lose", "leadership"]:
                log.commit()
                log.lose_leadership()
            case ["lose", "leadership"]:
                log.lose_leadership()
            case ["lose", "leadership,", "log", "stays"]:
                log.lose_leadership(keep=True)
            case ["lead"]:
                log.lead()
                await bench.lead()
            case ["log"]:
                self._say_log(self._start_offset)
            case ["topics"]:
                names = [topic.name for topic in metadata_queries.list_topics(bench.store.reader)]
                self._lines.append(f"topics: {', '.join(names) or 'none'}")
            case _:
                raise ValueError(f"there is no such command: {line}")
        await until(lambda: bench.store.applied_end_offset == log.feed.committed_end_offset)
        await until(lambda: bench.controller.is_active == (log.leader_and_epoch.leader_id == log.node_key.node_id))
        await turns()
        if line != "log":
            self._say_log(end_offset)
        if bench.controller.is_active != self._was_active:
            self._was_active = bench.controller.is_active
            self._lines.append(f"controller {'active' if self._was_active else 'not active'}")
        lines, self._lines = self._lines, []
        return lines

    def _submit(self, line: str, operation: Operation) -> None:
        self._bench.controller.submit([operation], lambda result: self._lines.append(self._answer(line, result)))

    def _answer(self, line: str, result: OperationResult) -> str:
        found = ", ".join(code.name for code in errors(result)) or "NONE"
        message = f' "{result.error_message}"' if result.error_message else ""
        written = f"written up to {self._at(result.end_offset)}" if result.end_offset >= 0 else "nothing written"
        leader_id = result.current_leader.leader_id
        leader = f", leader {leader_id}" if result.error_code and leader_id > 0 else ""
        return f"answer to {line}: {found}{leader}, {written}{message}"

    def _at(self, offset: int) -> str:
        return f"{offset - self._start_offset:+d}"

    def _say_log(self, start_offset: int) -> None:
        log = self._bench.log
        for batch in log.batches:
            if batch.base_offset < start_offset:
                continue
            state = "committed" if batch.end_offset <= log.feed.committed_end_offset else "not committed"
            records = [] if batch.is_control else MetadataBatch.FromString(CommittedBatch(batch).body).records
            words = ", ".join(map(_record, records)) or "control batch"
            self._lines.append(f"log {self._at(batch.base_offset)} (epoch {batch.epoch}, {state}): {words}")


def _record(record: MetadataRecord) -> str:
    kind = str(record.WhichOneof("record"))
    match kind:
        case "topic":
            return f"topic {record.topic.name}"
        case "partition":
            return f"partition {record.partition.partition_id}"
    return kind


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
async def test_the_transcript_is_what_happens(path: Path, held: Bench, pytestconfig: pytest.Config) -> None:
    rewrite = pytestconfig.getoption("rewrite_transcripts")
    await transcripts.check(path, Commands(held).run, rewrite=rewrite)
