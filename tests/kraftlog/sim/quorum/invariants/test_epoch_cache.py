"""The epoch cache agrees with the log."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import cast

import pytest

from kraftbase.types import Epoch, Offset
from kraftlog.sim.quorum.invariants.epoch_cache import EVERY_STEPS, EpochCache
from kraftlog.sim.quorum.observation.step import Step
from raft.core.epochs import LOG_BEGINNING
from raft.core.epochs import EpochCache as Cache
from raft.core.types import OffsetAndEpoch
from raft.storage.segmented_log import SegmentedLog
from tests.kraftlog.sim.quorum.invariants.builders import Cluster, at, batches, violates

LOG = batches(1, 1, 3, 4)


def cache_of(entries: Iterable[tuple[int, int]], start: OffsetAndEpoch = LOG_BEGINNING) -> Cache:
    """A cache with these entries, right or wrong."""
    cache = Cache(start=start)
    for epoch, offset in entries:
        cache._epochs.append(Epoch(epoch))
        cache._start_offsets.append(Offset(offset))
    return cache


def stepped(cluster: Cluster, *, core: Cache | None = None, started: bool = False) -> Step:
    """A step of node 1, whose core has that cache; else the one that its log has."""
    cluster.become(1, epochs=core or cluster.log(1).epochs)
    return cluster.step(1, started=started)


def test_a_log_that_was_written_cut_and_opened_again_is_fine() -> None:
    cluster = Cluster()
    invariant = EpochCache(cluster)
    cluster.store(1, *LOG[:3])
    cluster.start(1)
    invariant.after_step(stepped(cluster, started=True))
    cluster.append(1, *LOG[3:])
    invariant.after_step(stepped(cluster))
    cluster.cut(1, 2)
    invariant.after_step(stepped(cluster))


@pytest.mark.parametrize("wrong", [[(1, 0)], [(1, 0), (3, 1)], [(1, 0), (2, 1), (3, 2)], [(3, 2), (1, 0)]])
def test_a_cache_that_says_otherwise_is_not(wrong: list[tuple[int, int]]) -> None:
    cluster = Cluster()
    cluster.store(1, *LOG[:3])
    cluster.log(1).epochs = cache_of(wrong)
    invariant = EpochCache(cluster)
    with violates(invariant):
        invariant.after_step(stepped(cluster, started=True))


@pytest.mark.parametrize("is_behind", [False, True])
def test_the_core_has_the_same_once_its_orders_are_carried_out(is_behind: bool) -> None:
    cluster = Cluster()
    cluster.store(1, *LOG[:3])
    cluster.nodes[1].is_behind = is_behind
    invariant = EpochCache(cluster)
    step = stepped(cluster, core=cache_of([(1, 0), (3, 2), (4, 3)]), started=True)
    if is_behind:
        invariant.after_step(step)
        return
    with violates(invariant):
        invariant.after_step(step)


def test_it_is_found_without_a_start_too() -> None:
    cluster = Cluster()
    invariant = EpochCache(cluster)
    cluster.store(1, *LOG[:3])
    cluster.log(1).epochs = cache_of([(1, 0)])
    with violates(invariant):
        for _ in range(EVERY_STEPS):
            invariant.after_step(stepped(cluster))


def test_it_is_found_right_after_a_cut() -> None:
    cluster = Cluster()
    invariant = EpochCache(cluster)
    cluster.store(1, *LOG[:3])
    invariant.after_step(stepped(cluster))
    cluster.cut(1, 2)
    cluster.log(1).epochs = cache_of([(1, 0), (3, 2)])
    with violates(invariant):
        invariant.after_step(stepped(cluster))


def test_what_damage_took_from_the_disk_is_read_from_the_log() -> None:
    cluster = Cluster()
    cluster.store(1, *LOG[:3])
    cluster.lose(1)
    EpochCache(cluster).after_step(stepped(cluster, started=True))


def test_a_log_that_cannot_be_read_is_not_judged() -> None:
    cluster = Cluster()
    cluster.store(1, *batches(*[1] * 8))
    cluster.make_unreadable(1)
    EpochCache(cluster).after_step(stepped(cluster, started=True))


def test_epochs_that_go_back_are_wrong_though_log_and_caches_agree() -> None:
    cluster = Cluster()
    epochs = cache_of([(1, 0), (2, 1), (1, 2)])
    cluster.nodes[1].log = cast(
        SegmentedLog,
        SimpleNamespace(
            epochs=epochs, start=epochs.start, log_end_offset=3, flushed_end_offset=3, read_batches=lambda *_: ()
        ),
    )
    cluster.disk_holds(1, *batches(1, 2, 1))
    invariant = EpochCache(cluster)
    with violates(invariant):
        invariant.after_step(stepped(cluster, started=True))


def test_epochs_must_increase_whatever_the_log_says() -> None:
    cluster = Cluster()
    cluster.store(1, *batches(1, 1, 1))
    cluster.disk_holds(1, *batches(1, 3, 2))
    cluster.log(1).epochs = cache_of([(1, 0), (3, 1), (2, 2)])
    invariant = EpochCache(cluster)
    with violates(invariant):
        invariant.after_step(stepped(cluster, started=True))


def test_an_epoch_that_goes_on_behind_the_start_has_no_entry() -> None:
    cluster = Cluster()
    invariant = EpochCache(cluster)
    cluster.store(1, *LOG)
    cluster.advance(1, at(1))
    assert cluster.log(1).epochs.entries() == [(3, 2), (4, 3)]
    invariant.after_step(stepped(cluster, started=True))
    cluster.advance(1, at(3, 3))
    invariant.after_step(stepped(cluster, started=True))
    cluster.start(1)
    invariant.after_step(stepped(cluster, started=True))


def test_a_log_that_began_anew_has_no_epochs() -> None:
    cluster = Cluster()
    cluster.store(1, *LOG[:2])
    cluster.truncate_fully_and_start_at(1, at(7, 3))
    assert cluster.log(1).epochs.entries() == []
    EpochCache(cluster).after_step(stepped(cluster, started=True))


@pytest.mark.parametrize("start", [at(1, 0), at(1, 3), at(0, 0)])
def test_another_epoch_before_the_start_or_another_start_is_wrong(start: OffsetAndEpoch) -> None:
    cluster = Cluster()
    cluster.store(1, *LOG)
    cluster.advance(1, at(1))
    cluster.log(1).epochs = cache_of(cluster.log(1).epochs.entries(), start)
    invariant = EpochCache(cluster)
    with violates(invariant):
        invariant.after_step(stepped(cluster, started=True))


def test_the_core_has_the_same_start() -> None:
    cluster = Cluster()
    cluster.store(1, *LOG)
    cluster.advance(1, at(1))
    invariant = EpochCache(cluster)
    with violates(invariant):
        invariant.after_step(stepped(cluster, core=cache_of(cluster.log(1).epochs.entries()), started=True))
