"""Metadata transactions: the records between begin and end take effect at once, or not at all (CT-16)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from kraftbase.types import Offset
from kraftlog.controller.controller import Controller
from kraftlog.sim.engine.tables_in_memory import empty_image, tables_in_memory
from kraftpb.v1.admin_pb2 import OperationResult
from kraftpb.v1.metadata_pb2 import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    MetadataBatch,
    MetadataRecord,
)
from raft.core.types import LeaderAndEpoch
from raft.listener import CommittedBatch
from statemachine.replay.replay import ReplayError
from statemachine.replay.transactions import applied_together
from statemachine.store.metadata_tables import MetadataTables
from statemachine.tables.topic_tables import TOPICS
from tests.statemachine.builders import CLUSTER_ID, batch, log_of, no_op, register, topic
from tests.statemachine.conftest import node_bench
from tests.statemachine.machines import wait_applied
from tests.statemachine.waiting import until

BEGIN = MetadataRecord(begin_transaction=BeginTransactionRecord(name="t"))
END = MetadataRecord(end_transaction=EndTransactionRecord())
ABORT = MetadataRecord(abort_transaction=AbortTransactionRecord(reason="r"))


def tables() -> MetadataTables:
    return tables_in_memory(empty_image(CLUSTER_ID), digest_interval=3)


def topics(made: MetadataTables) -> list[str]:
    return sorted(record.name for _, record in TOPICS.find(made.connection))


def test_ct16_nothing_of_an_open_transaction_is_applied_and_all_of_it_with_its_end() -> None:
    made = tables()
    before, begun, going_on, ended = log_of(
        [[topic("a", 1)], [BEGIN, topic("b", 2)], [topic("c", 3)], [topic("d", 4), END]]
    )
    made.apply([before, begun])
    assert (topics(made), made.applied.end_offset, made.has_open_transaction) == (["a"], 1, True)
    made.apply([going_on])
    assert (topics(made), made.applied.end_offset) == (["a"], 1)
    made.apply([ended])
    assert (topics(made), made.applied.end_offset) == (["a", "b", "c", "d"], 6)
    assert not made.has_open_transaction


def test_ct16_an_aborted_transaction_has_no_effect() -> None:
    made = tables()
    made.apply(log_of([[BEGIN, topic("b", 2)], [topic("c", 3)], [ABORT], [topic("d", 4)]]))
    assert (topics(made), made.applied.end_offset) == (["d"], 5)


def test_a_transaction_in_one_batch() -> None:
    made = tables()
    made.apply(log_of([[BEGIN, topic("b", 2), END], [BEGIN, topic("c", 3), ABORT]]))
    assert (topics(made), made.applied.end_offset) == (["b"], 6)


JOINED = [topic("a", 1), BEGIN, topic("b", 2), ABORT, topic("c", 3), BEGIN, topic("d", 4), END, topic("e", 5)]


@pytest.mark.parametrize("cuts", [[], [1], [2], [3], [4], [2, 6], [1, 3, 5, 7], [2, 3, 6, 7], list(range(1, 9))])
def test_others_records_may_stand_before_and_behind_in_the_same_batch(cuts: list[int]) -> None:
    made = tables()
    bounds = [0, *cuts, len(JOINED)]
    for one in log_of([JOINED[start:end] for start, end in pairwise(bounds)]):
        made.apply([one])
    assert (topics(made), made.applied.end_offset) == (["a", "c", "d", "e"], len(JOINED))
    assert not made.has_open_transaction


def test_a_batch_in_which_one_ends_and_the_next_begins_waits_for_that() -> None:
    made = tables()
    begun, both, aborted = log_of([[BEGIN, topic("a", 1)], [END, BEGIN, topic("b", 2)], [topic("c", 3), ABORT]])
    made.apply([begun])
    made.apply([both])
    assert (topics(made), made.applied.end_offset, made.has_open_transaction) == ([], 0, True)
    made.apply([aborted])
    assert (topics(made), made.applied.end_offset) == (["a"], 7)


@pytest.mark.parametrize("aborts", [False, True])
def test_however_the_log_is_cut_the_digest_is_the_same(aborts: bool) -> None:
    log = log_of(
        [
            [topic("a", 1)],
            [BEGIN, topic("b", 2)],
            [no_op()],
            [topic("c", 3)],
            [ABORT if aborts else END],
            [topic("d", 4)],
        ]
    )
    at_once, one_by_one = tables(), tables()
    at_once.apply(log)
    for one in log:
        one_by_one.apply([one])
    assert at_once.applied == one_by_one.applied
    assert at_once.state_digest == one_by_one.state_digest
    assert [made.take_state_digests()[-1] for made in (at_once, one_by_one)] == [at_once.state_digest] * 2


def test_an_aborted_one_and_an_ended_one_come_to_different_digests() -> None:
    digests = set()
    for last in (END, ABORT):
        made = tables()
        made.apply(log_of([[BEGIN, topic("b", 2)], [last]]))
        digests.add(made.applied.digest)
    assert len(digests) == 2


def test_a_control_batch_may_come_between() -> None:
    made = tables()
    begun = batch(0, [BEGIN, topic("b", 2)])
    made.apply([begun, batch(2, [], epoch=2, is_control=True), batch(3, [END], epoch=2)])
    assert (topics(made), made.applied.end_offset, made.applied.epoch) == (["b"], 4, 2)


def test_who_starts_again_is_given_the_open_transaction_again() -> None:
    made = tables()
    log = log_of([[topic("a", 1)], [BEGIN, topic("b", 2)], [topic("c", 3), END]])
    made.apply(log[:2])
    again = MetadataTables(made.connection, digest_interval=3)
    assert again.applied.end_offset == 1
    assert not again.has_open_transaction
    again.apply(log[1:])
    assert topics(again) == ["a", "b", "c"]


def test_batches_of_an_open_transaction_that_come_twice_are_passed_over() -> None:
    made = tables()
    log = log_of([[BEGIN, topic("b", 2)], [topic("c", 3)], [END]])
    made.apply(log[:2])
    made.apply(log)
    assert topics(made) == ["b", "c"]


def test_what_waits_is_decoded_once_however_many_runs_it_comes_in(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = 0

    def counting(body: bytes) -> MetadataBatch:
        nonlocal decoded
        decoded += 1
        return MetadataBatch.FromString(body)

    monkeypatch.setattr("statemachine.replay.transactions.MetadataBatch", SimpleNamespace(FromString=counting))
    made = tables()
    log = log_of([[BEGIN], *([topic(f"t{number}", number)] for number in range(100)), [END]])
    for one in log:
        made.apply([one])
    assert len(topics(made)) == 100
    assert decoded == len(log)


def test_what_comes_is_kept_with_what_waits_and_that_is_not_gone_through() -> None:
    log = log_of([[BEGIN], *([no_op()] for _ in range(20_000)), [ABORT]])
    _, waiting = applied_together(log[:1])
    assert waiting is not None
    for one in log[1:-1]:
        _, longer = applied_together([one], waiting)
        assert longer is not None
        assert longer.earlier is waiting
        assert [run.batch for run in longer.latest] == [one]
        waiting = longer
    assert applied_together([], waiting).open_transaction is waiting
    assert [run.batch for run in waiting.runs()] == log[:-1]
    for _ in range(2):  # a run that could not be written is delivered again
        runs, ended = applied_together(log[-1:], waiting)
        assert ([run.batch for run in runs], ended) == (log, None)


@pytest.mark.parametrize("cuts", [[], [1, 2, 3, 4], [2], [1, 3]])
def test_one_is_aborted_and_the_next_begins_in_the_same_batch(cuts: list[int]) -> None:
    made = tables()
    log = log_of(
        [
            [topic("a", 1), BEGIN, topic("b", 2)],
            [topic("c", 3)],
            [topic("d", 4), ABORT, topic("e", 5), BEGIN, topic("f", 6)],
            [topic("g", 7), ABORT, topic("h", 8), BEGIN],
            [topic("i", 9), END],
        ]
    )
    bounds = [0, *cuts, len(log)]
    for start, end in pairwise(bounds):
        made.apply(log[start:end])
    assert topics(made) == ["a", "e", "h", "i"]


@pytest.mark.parametrize(
    ("runs", "kind"),
    [
        ([[BEGIN, topic("a", 1)], [BEGIN]], "begin_transaction"),
        ([[BEGIN, BEGIN]], "begin_transaction"),
        ([[BEGIN, topic("a", 1), END, BEGIN, BEGIN]], "begin_transaction"),
        ([[END]], "end_transaction"),
        ([[ABORT]], "abort_transaction"),
        ([[BEGIN, END, topic("a", 1), END]], "end_transaction"),
        ([[BEGIN, topic("a", 1)], [ABORT, topic("b", 2), ABORT]], "abort_transaction"),
    ],
)
def test_ct16_markers_where_none_may_be_end_the_process(runs: Sequence[Sequence[MetadataRecord]], kind: str) -> None:
    made = tables()
    log: list[CommittedBatch] = log_of(runs)
    with pytest.raises(ReplayError, match=kind):
        made.apply(log)
    assert made.applied.end_offset == 0


class AtOnce:
    """Registers a broker in the very moment in which the controller becomes active."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self.results: list[OperationResult] = []

    def leader_changed(self, leader_and_epoch: LeaderAndEpoch) -> None:
        if self._controller.is_active:
            self._controller.process(register(1), self.results.append)
            self._controller.schedule()

    def applied(self, end_offset: Offset) -> None:
        """It ignores that."""

    def shut_down(self) -> None:
        """It has nothing to end."""


async def test_ct14_an_operation_may_be_joined_to_the_bootstrap_transaction_in_one_batch(tmp_path: Path) -> None:
    async with node_bench(tmp_path) as bench:
        at_once = AtOnce(bench.controller)
        bench.machine.subscribe(at_once)
        await until(lambda: bool(at_once.results))
        assert at_once.results[0].error_code == 0
        batch = bench.log._node.log.read_batches(Offset(1), 1)[0]
        assert batch.base_offset == 1  # the transaction and the operation
        assert at_once.results[0].end_offset == batch.end_offset
        await wait_applied(bench.machine, batch.end_offset, 20_000)  # it is answered before it is applied
