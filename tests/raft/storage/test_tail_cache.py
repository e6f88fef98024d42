"""The cache of the log's last batches."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kraftbase.types import Offset
from raft.core.types import Batch
from raft.storage.tail_cache import OBJECT_BYTES, TailCache
from tests.raft.storage.builders import batches_from, data_batch


def cost(batches: list[Batch]) -> int:
    return sum(len(batch.data) + OBJECT_BYTES for batch in batches)


def filled(batches: list[Batch], max_bytes: int) -> TailCache:
    cache = TailCache(max_bytes)
    for batch in batches:
        cache.append(batch)
    return cache


@given(st.integers(1, 100), st.integers(0, 8000))
def test_the_cache_holds_the_last_batches_that_fit_and_knows_what_it_does_not_hold(count: int, max_bytes: int) -> None:
    batches = batches_from(0, count)
    cache = filled(batches, max_bytes)
    end_offset = batches[-1].end_offset
    held = next(index for index in range(count + 1) if cost(batches[index:]) <= max_bytes)
    for index, batch in enumerate(batches):
        for offset in range(batch.base_offset, batch.end_offset):
            expected = batches[index:] if index >= held else None
            assert cache.read(Offset(offset), 10**6, end_offset) == expected


def test_a_batch_larger_than_the_cache_empties_it() -> None:
    cache = filled(batches_from(0, 3), 1000)
    cache.append(data_batch(4, size=5000))
    assert cache.read(Offset(4), 10**6, Offset(5)) is None
    cache.append(data_batch(5))
    assert cache.read(Offset(5), 10**6, Offset(6)) == [data_batch(5)]


@given(st.integers(0, 60), st.integers(0, 60), st.sampled_from([0, 1500, 10**6]))
def test_what_is_cut_is_forgotten_and_replaced(count: int, kept: int, max_bytes: int) -> None:
    batches = batches_from(0, count)
    cache = filled(batches, max_bytes)
    batches = batches[:kept]
    end_offset = batches[-1].end_offset if batches else Offset(0)
    cache.truncate(end_offset)
    more = batches_from(end_offset, 3, epoch=2, size=9)
    for batch in more:
        cache.append(batch)
    for index, batch in enumerate(more):
        found = cache.read(batch.base_offset, 10**6, more[-1].end_offset)
        assert found == (more[index:] if max_bytes else None)
    if max_bytes == 10**6:
        assert cache.read(Offset(0), 10**6, more[-1].end_offset) == batches + more
