"""The digest of records: the same for the same records, another for any others."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlog.clients.records import ContentDigest, Record
from kraftlog.clients.totals import Totals

EMPTY = "0" * 32


def digest(*records: Record) -> str:
    made = ContentDigest()
    for record in records:
        made.add(record)
    return made.hex()


def test_the_order_does_not_count_and_neither_do_places_and_times() -> None:
    records = [Record(b"a"), Record(b"b", b"k", (("n", b"1"),)), Record(None, b"k"), Record(b"a")]
    assert {digest(*order) for order in permutations(records)} == {digest(*records)}
    assert digest(Record(b"a")) == digest(Record(b"a", timestamp_ms=1, partition=2, offset=3))
    assert digest() == EMPTY


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Record(b"a"), Record(b"b")),
        (Record(b""), Record(None)),
        (Record(b"a", b"b"), Record(b"b", b"a")),
        (Record(b"b", b"a"), Record(b"ab", b"")),
        (Record(b"a"), Record(b"a", headers=(("n", None),))),
        (Record(b"a", headers=(("n", b""),)), Record(b"a", headers=(("n", None),))),
        (Record(b"a", headers=(("n", b"m"),)), Record(b"a", headers=(("m", b"n"),))),
        (Record(b"a", headers=(("n", b"1"), ("n", b"2"))), Record(b"a", headers=(("n", b"2"), ("n", b"1")))),
    ],
)
def test_everything_else_counts(first: Record, second: Record) -> None:
    assert digest(first) != digest(second)


def test_a_record_that_came_twice_shows() -> None:
    assert len({digest(*[Record(b"a")] * count) for count in range(5)}) == 5


@given(st.lists(st.tuples(st.integers(0, 2), st.binary(max_size=3)), max_size=12))
def test_totals_of_partitions_sum_up_to_the_digest_of_all(written: list[tuple[int, bytes]]) -> None:
    records = [Record(value, partition=partition) for partition, value in written]
    totals = Totals([0, 1, 2])
    totals.add(records)
    fields = totals.fields()
    assert (fields["Records"], fields["Checksum"]) == (len(records), digest(*records))
    for of in fields["Partitions"]:
        mine = [record for record in records if record.partition == of["Partition"]]
        assert (of["Records"], of["Checksum"]) == (len(mine), digest(*mine))
    assert totals.rows()[-1] == {
        "Partition": "all",
        **{name: fields[name] for name in ("Records", "Bytes", "Checksum")},
    }
