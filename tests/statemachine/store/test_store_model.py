"""Any records in any grouping: the tables are those of a plain replay, and the digest distinguishes logs."""

from __future__ import annotations

import copy
import tempfile
from contextlib import closing
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from kraftpb.v1.metadata_pb2 import MetadataRecord
from statemachine.replay.replay import ReplayError
from statemachine.store.metadata_tables import Applied
from statemachine.store.store import MetadataStore
from tests.effort import examples
from tests.statemachine.builders import (
    BROKER,
    CLUSTER_ID,
    TOPIC,
    batch,
    broker,
    config,
    log_of,
    no_op,
    partition,
    remove_topic,
    topic,
)
from tests.statemachine.reference import Impossible, Reference, seen_in

NUMBERS = st.integers(1, 4)
NAMES = st.sampled_from(["a", "b", "a.b", "a_b"])

RECORDS = st.one_of(
    st.builds(topic, NAMES, NUMBERS),
    st.builds(partition, NUMBERS, st.integers(0, 2), st.sampled_from([(1,), (2, 1), (3, 1, 2)])),
    st.builds(remove_topic, NUMBERS),
    st.builds(
        config, NAMES, st.sampled_from(["x", "y"]), st.sampled_from([None, "1", "2"]), st.sampled_from([TOPIC, BROKER])
    ),
    st.builds(broker, NUMBERS, st.integers(0, 9)),
    st.builds(no_op),
)
RUNS = st.lists(st.lists(RECORDS, min_size=1, max_size=6), min_size=1, max_size=12)


def possible(runs: list[list[MetadataRecord]]) -> list[list[MetadataRecord]]:
    """The runs without the records that cannot be true."""
    state = Reference()
    kept = []
    for run in runs:
        records = []
        for record in run:
            try:
                state.replay(record)
            except Impossible:
                continue
            records.append(record)
        kept.append(records or [no_op()])
    return kept


def opened(directory: str, name: str) -> closing[MetadataStore]:
    return closing(MetadataStore.open(Path(directory) / name, CLUSTER_ID))


@settings(max_examples=examples(80), deadline=None)
@given(runs=RUNS, cuts=st.lists(st.integers(1, 4), min_size=1), reopen=st.booleans())
def test_the_tables_are_what_a_plain_replay_comes_to_however_batches_are_grouped(
    runs: list[list[MetadataRecord]], cuts: list[int], reopen: bool
) -> None:
    log = log_of(possible(runs))
    state = Reference()
    for record in (record for run in possible(runs) for record in run):
        state.replay(record)
    with tempfile.TemporaryDirectory() as directory:
        with opened(directory, "at-once.db") as at_once:
            at_once.apply(log)
            assert seen_in(at_once) == state
            applied: Applied = at_once.applied
        start, turn = 0, 0
        while start < len(log):
            with opened(directory, "grouped.db") as grouped:
                while start < len(log):
                    end = start + cuts[turn % len(cuts)]
                    grouped.apply(log[max(0, start - 1) : end])  # a batch that is applied already, too
                    start, turn = end, turn + 1
                    if reopen:
                        break
        with opened(directory, "grouped.db") as grouped:
            assert seen_in(grouped) == state
            assert grouped.applied == applied


@settings(max_examples=examples(80), deadline=None)
@given(before=st.lists(RECORDS, max_size=6), last=RECORDS)
def test_ct02_what_cannot_be_true_is_refused_in_the_same_transaction_and_in_a_later_one(
    before: list[MetadataRecord], last: MetadataRecord
) -> None:
    state = Reference()
    history = possible([before])[0]
    for record in history:
        state.replay(record)
    expected = copy.deepcopy(state)
    try:
        expected.replay(last)
        can_be = True
    except Impossible:
        can_be = False
    with tempfile.TemporaryDirectory() as directory:
        for name, groups in (("one.db", 1), ("two.db", 2)):
            log = [batch(0, history), batch(len(history), [last])]
            with opened(directory, name) as store:
                if groups == 2:
                    store.apply(log[:1])
                try:
                    store.apply(log)
                    assert can_be
                    assert seen_in(store) == expected
                except ReplayError:
                    assert not can_be
                    assert seen_in(store) == (state if groups == 2 else Reference())


@settings(max_examples=examples(40), deadline=None)
@given(runs=RUNS, changed=st.integers(0, 1_000))
def test_two_logs_that_differ_anywhere_have_different_digests(runs: list[list[MetadataRecord]], changed: int) -> None:
    log = log_of(possible(runs))
    with tempfile.TemporaryDirectory() as directory:
        with opened(directory, "one.db") as store:
            store.apply(log)
            digest = store.applied.digest
        position = changed % len(log)
        for name, other in (
            ("epoch.db", batch(log[position].base_offset, possible(runs)[position], epoch=2)),
            ("records.db", batch(log[position].base_offset, [no_op()] * 7)),
        ):
            following = log_of([*possible(runs)[:position]])
            with opened(directory, name) as store:
                store.apply([*following, other])
                if position == len(log) - 1:
                    assert store.applied.digest != digest
                with opened(directory, f"prefix-{name}") as prefix:
                    prefix.apply(log[: position + 1])
                    assert prefix.applied.digest != store.applied.digest
