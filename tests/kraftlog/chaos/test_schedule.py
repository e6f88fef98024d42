"""What the seed decides, and that every fault happens."""

from __future__ import annotations

from itertools import islice
from random import Random

import pytest

from kraftlog.chaos.nemesis import Kill, RestartStorm
from kraftlog.chaos.schedule import (
    OTHER_KINDS,
    OTHER_REST_SECONDS,
    PROCESS_KINDS,
    PROCESS_REST_SECONDS,
    Episode,
    Kind,
    schedule,
)

LANES = pytest.mark.parametrize(
    ("kinds", "rest_seconds"), [(PROCESS_KINDS, PROCESS_REST_SECONDS), (OTHER_KINDS, OTHER_REST_SECONDS)]
)


def draw(seed: int, kinds: tuple[Kind, ...], rest_seconds: tuple[float, float], count: int = 200) -> list[Episode]:
    return list(islice(schedule(Random(seed), kinds, rest_seconds), count))


@LANES
def test_a_seed_is_a_schedule(kinds: tuple[Kind, ...], rest_seconds: tuple[float, float]) -> None:
    assert draw(7, kinds, rest_seconds) == draw(7, kinds, rest_seconds)
    assert draw(7, kinds, rest_seconds) != draw(8, kinds, rest_seconds)


@LANES
def test_each_kind_comes_once_before_any_comes_again(
    kinds: tuple[Kind, ...], rest_seconds: tuple[float, float]
) -> None:
    for seed in range(20):
        first = draw(seed, kinds, rest_seconds, len(kinds))
        assert {episode.fault for episode in first} == {kind.fault for kind in kinds}


@LANES
def test_times_are_within_their_bounds(kinds: tuple[Kind, ...], rest_seconds: tuple[float, float]) -> None:
    bounds = {kind.fault: kind.hold_seconds for kind in kinds}
    for episode in draw(1, kinds, rest_seconds, 1000):
        shortest, longest = bounds[episode.fault]
        assert shortest <= episode.hold_seconds <= longest
        assert rest_seconds[0] <= episode.rest_seconds <= rest_seconds[1]


def test_who_is_struck_is_in_the_schedule() -> None:
    episode = draw(1, PROCESS_KINDS, PROCESS_REST_SECONDS)[0]
    first, again = episode.make(), episode.make()
    assert first is not again
    assert first.random.random() == again.random.random()


def test_ten_minutes_have_room_for_twice_the_kills_that_are_promised() -> None:
    """Counted with four seconds for each start, which is slow, and one kill for each fault that kills."""
    seconds = kills = 0.0
    for episode in draw(1, PROCESS_KINDS, PROCESS_REST_SECONDS, 1000):
        seconds += episode.hold_seconds + episode.rest_seconds
        if issubclass(episode.fault, Kill):
            kills, seconds = kills + 1, seconds + 2.0
        elif issubclass(episode.fault, RestartStorm):
            kills, seconds = kills + 5, seconds + 10.0
        else:
            seconds += 2.0
        if seconds > 600:
            break
    assert kills >= 150
