"""When a log directory counts as full (CT-66)."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from kraftbase.errors import OutOfSpace
from kraftbase.files.files import Space
from kraftlog.broker.log.full_disk import LOW_WATER_BYTES, LOW_WATER_DIVISOR, FullDisk

LARGE = LOW_WATER_BYTES * LOW_WATER_DIVISOR * 10
LOW = LOW_WATER_BYTES


def a_disk() -> tuple[FullDisk, list[bool]]:
    """A disk, and what it has said."""
    disk, said = FullDisk("data"), list[bool]()
    disk.on_change = lambda: said.append(disk.is_full)
    return disk, said


def test_it_is_full_below_the_low_water_mark_until_twice_as_much_is_free() -> None:
    disk, said = a_disk()
    with capture_logs() as lines:
        for free_bytes in (LARGE, LOW, LOW - 1, LOW - 2, LOW, 2 * LOW - 1, 2 * LOW, LOW):
            disk.measured(Space(free_bytes, LARGE))
    assert said == [True, False]
    assert [line["event"][:31] for line in lines] == [
        "a log directory has little room",
        "a log directory has room again",
    ]


@pytest.mark.parametrize(
    ("total_bytes", "low_water_bytes"), [(LARGE, LOW), (LOW * LOW_WATER_DIVISOR - LOW_WATER_DIVISOR, LOW - 1), (60, 3)]
)
def test_the_low_water_mark_of_a_small_disk_is_a_part_of_it(total_bytes: int, low_water_bytes: int) -> None:
    disk, _ = a_disk()
    disk.measured(Space(total_bytes, total_bytes))
    assert disk.low_water_bytes == low_water_bytes


def test_what_is_refused_with_much_room_makes_it_full_until_nothing_is_refused() -> None:
    """Such as by a quota of the file system."""
    disk, said = a_disk()
    disk.measured(Space(LARGE, LARGE))
    disk.refused(OutOfSpace("quota"))
    disk.refused(OutOfSpace("quota"))
    disk.measured(Space(LARGE, LARGE))
    assert said == [True]
    disk.measured(Space(LARGE, LARGE))
    assert said == [True, False]
