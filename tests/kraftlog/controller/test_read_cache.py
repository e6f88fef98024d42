"""The cache of the overlay's answers is bounded, and spares the reads of SQLite that it is for."""

from __future__ import annotations

import pytest

from kraftlog.controller.read_cache import ReadCache
from kraftpb.v1.metadata_pb2 import ConfigRecord
from statemachine.tables.cluster_tables import CONFIGS
from statemachine.tables.remote_log_tables import REMOTE_SEGMENT_EPOCHS
from statemachine.tables.table import Key
from statemachine.tables.topic_tables import PARTITIONS_BY_LEADER, PARTITIONS_WITH_ELR, TOPICS_BY_NAME
from tests.statemachine.builders import alter, alteration, create
from tests.statemachine.conftest import Bench

A: Key = (2, "a")


def rows_of(topic: str, *names: str, value: str = "1") -> list[tuple[Key, ConfigRecord]]:
    """The configs of a topic."""
    return [
        ((2, topic, name), ConfigRecord(resource_type=2, resource_name=topic, name=name, value=value)) for name in names
    ]


def kept(cache: ReadCache) -> list[str]:
    """The topics whose configs are kept."""
    return [name for name in "abcd" if cache.find(CONFIGS, (2, name)) is not None]


def test_a_row_that_is_set_again_stays_in_its_place() -> None:
    cache = ReadCache()
    cache.keep(CONFIGS, A, rows_of("a", "x", "y"))
    ((key, changed),) = rows_of("a", "x", value="2")
    cache.put(CONFIGS, key, changed)
    found = cache.find(CONFIGS, A)
    assert found is not None
    assert [(row.name, row.value) for row in found.values()] == [("x", "2"), ("y", "1")]


def test_a_new_row_forgets_the_ranges_that_it_is_in_and_no_others() -> None:
    cache = ReadCache()
    for prefix in ((), (2,), A, (2, "a", "z"), (2, "b"), (4,)):
        cache.keep(CONFIGS, prefix, [])
    cache.put(CONFIGS, (2, "a", "z"), ConfigRecord())
    assert [prefix for prefix in ((), (2,), A, (2, "a", "z")) if cache.find(CONFIGS, prefix) is not None] == []
    assert [prefix for prefix in ((2, "b"), (4,)) if cache.find(CONFIGS, prefix) is None] == []


def test_a_row_is_found_in_any_range_around_it() -> None:
    cache = ReadCache()
    assert cache.find_around(CONFIGS, (2, "a", "x")) is None
    cache.keep(CONFIGS, (2,), rows_of("a", "x"))
    for key, is_there in (((2, "a", "x"), True), ((2, "b", "x"), False)):
        around = cache.find_around(CONFIGS, key)
        assert around is not None and (key in around) is is_there
    assert cache.find_around(CONFIGS, (4, "a", "x")) is None


def test_when_there_are_too_many_rows_all_are_forgotten_but_the_new_ones() -> None:
    cache = ReadCache(rows_max=6)
    cache.keep(CONFIGS, A, rows_of("a", "x", "y"))
    cache.keep(CONFIGS, (2, "b"), rows_of("b", "x", "y"))
    assert kept(cache) == ["a", "b"]
    cache.keep(CONFIGS, (2, "c"), [])  # that there is none counts too
    assert kept(cache) == ["c"]
    cache.keep(CONFIGS, (2, "d"), rows_of("d", *"123456"))  # they alone would be too many
    assert kept(cache) == ["c"]


def test_when_there_are_too_many_bytes_all_are_forgotten_but_the_new_ones() -> None:
    cache = ReadCache(bytes_max=1_000)
    for name in "ab":
        cache.keep(CONFIGS, (2, name), rows_of(name, "x", value="v" * 480))
    assert kept(cache) == ["a", "b"]
    cache.keep(CONFIGS, (2, "c"), rows_of("c", "x", value="v" * 20))
    assert kept(cache) == ["c"]
    cache.keep(CONFIGS, (2, "d"), rows_of("d", "x", value="v" * 1_000))
    assert kept(cache) == ["c"]
    cache.keep(TOPICS_BY_NAME, ("n" * 980,), [])  # no such topic
    assert kept(cache) == []


@pytest.mark.parametrize("bounds", [{"rows_max": 10}, {"bytes_max": 2_000}], ids=str)
def test_a_row_that_changes_often_reaches_the_bounds(bounds: dict[str, int]) -> None:
    """What is set in its place may be larger: it counts like a new one."""
    cache = ReadCache(**bounds)
    cache.keep(CONFIGS, A, rows_of("a", "x"))
    ((key, changed),) = rows_of("a", "x", value="v" * 200)
    for _ in range(20):
        cache.put(CONFIGS, key, changed)
    assert kept(cache) == []


def test_rows_that_go_with_their_partitions_are_not_kept() -> None:
    cache = ReadCache()
    for table in (PARTITIONS_BY_LEADER, PARTITIONS_WITH_ELR, REMOTE_SEGMENT_EPOCHS):
        cache.keep(table, (), [])
        assert cache.find(table, ()) is None


async def test_an_operation_like_the_last_one_reads_nothing_from_sqlite(bench: Bench) -> None:
    await bench.with_brokers(1)
    await bench.done(create("a"))
    for value in "12":
        await bench.done(alter(alteration("a", "retention.ms", value)))
    statements: list[str] = []
    bench.store.reader.set_trace_callback(statements.append)
    await bench.done(alter(alteration("a", "retention.ms", "3")))
    assert statements == []
    await bench.done(alter(alteration("a", "segment.ms", "4")))  # a new row forgets the range
    await bench.done(alter(alteration("a", "retention.ms", "5")))
    assert len(statements) == 1
