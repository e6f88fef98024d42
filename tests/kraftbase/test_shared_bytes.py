"""Room for bytes that many connections hold: which of them gets it, and in which order."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kraftbase.shared_bytes import SharedBytes
from tests.effort import examples

BYTES_MAX = 100


class Holder:
    """A waiter that remembers what it received."""

    def __init__(self, told: list[Holder]) -> None:
        self.held_bytes = 0
        self._told = told

    def has_room(self, bound: SharedBytes, size_bytes: int) -> None:
        self.held_bytes += size_bytes
        self._told.append(self)


def _two() -> tuple[SharedBytes, list[Holder], Holder, Holder]:
    told: list[Holder] = []
    return SharedBytes(BYTES_MAX), told, Holder(told), Holder(told)


def test_who_does_not_fit_waits_and_is_told_in_order() -> None:
    shared, told, first, second = _two()
    shared.hold(80)
    assert not shared.try_hold(first, 70)
    assert not shared.try_hold(second, 10), "it would fit, and is not the first"
    shared.give_back(20)
    assert told == []
    shared.give_back(30)
    assert (told, first.held_bytes, second.held_bytes, shared.held_bytes) == ([first], 70, 0, 100)
    shared.give_back(70)
    assert (told, shared.held_bytes, shared.has_waiting) == ([first, second], 40, False)


def test_who_asks_again_keeps_its_place() -> None:
    shared, told, first, second = _two()
    shared.hold(100)
    assert not shared.try_hold(first, 70)
    assert not shared.try_hold(second, 10)
    assert not shared.try_hold(first, 60)
    shared.give_back(50)
    assert told == []
    shared.give_back(10)
    assert (told, first.held_bytes) == ([first], 60)


def test_who_asks_for_less_lets_those_behind_it_in() -> None:
    shared, told, first, second = _two()
    shared.hold(80)
    assert not shared.try_hold(first, 70)
    assert not shared.try_hold(second, 10)
    assert shared.try_hold(first, 5)
    assert (told, shared.held_bytes) == ([second], 95)


def test_anything_fits_if_nothing_is_held() -> None:
    shared, told, first, second = _two()
    assert shared.try_hold(first, 1000)
    assert not shared.try_hold(second, 2000)
    shared.give_back(1000)
    assert (told, second.held_bytes) == ([second], 2000)


def test_who_waits_no_more_does_not_keep_others_waiting() -> None:
    shared, told, first, second = _two()
    shared.hold(80)
    assert not shared.try_hold(first, 70)
    assert not shared.try_hold(second, 10)
    shared.remove(first)
    assert (told, shared.held_bytes, shared.has_waiting) == ([second], 90, False)


def _reserved() -> tuple[SharedBytes, list[Holder], Holder, Holder]:
    told: list[Holder] = []
    return SharedBytes(BYTES_MAX, reserved_bytes=25, small_bytes_max=6), told, Holder(told), Holder(told)


def test_who_asks_for_few_bytes_does_not_wait_for_those_who_ask_for_many() -> None:
    shared, told, large, small = _reserved()
    assert shared.unreserved_bytes == 75
    assert shared.try_hold(large, 75)
    assert not shared.try_hold(Holder(told), 7), "the rest is for small ones"
    for _ in range(4):
        assert shared.try_hold(small, 6)
    assert not shared.try_hold(small, 6)
    shared.give_back(6)
    assert (told, shared.held_bytes) == ([small], 99)


def test_who_asks_for_many_bytes_has_its_room_beside_those_who_ask_for_few() -> None:
    shared, told, large, small = _reserved()
    shared.hold(26)
    assert not shared.try_hold(large, 75)
    assert shared.try_hold(small, 1)
    shared.give_back(1)
    assert told == []
    shared.give_back(1)
    assert (told, shared.held_bytes) == ([large], 100)


def test_who_asks_for_few_instead_of_many_changes_the_queue() -> None:
    shared, told, first, second = _reserved()
    shared.hold(70)
    assert not shared.try_hold(first, 50)
    assert not shared.try_hold(second, 7), "it would not fit, and is not the first"
    shared.give_back(3)
    assert shared.try_hold(first, 1)
    assert (told, shared.has_waiting) == ([second], False)


class Sharing(RuleBasedStateMachine):
    """In any order of requests and releases, the held bytes are the sum, and no waiter waits without a reason."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Holder] = []
        self.holders = [Holder(self.told) for _ in range(4)]
        self.waiting: dict[Holder, int] = {}
        self.shared = SharedBytes(BYTES_MAX)

    def _forget_told(self) -> None:
        for holder in self.told:
            assert holder is next(iter(self.waiting)), "told in the order of asking"
            del self.waiting[holder]
        self.told.clear()

    @rule(number=st.integers(0, 3), size_bytes=st.integers(0, 130))
    def ask(self, number: int, size_bytes: int) -> None:
        holder = self.holders[number]
        if self.shared.try_hold(holder, size_bytes):
            holder.held_bytes += size_bytes
            self.waiting.pop(holder, None)
            self._forget_told()
        else:
            self.waiting[holder] = size_bytes

    @rule(number=st.integers(0, 3), part=st.integers(1, 3))
    def give_back(self, number: int, part: int) -> None:
        holder = self.holders[number]
        size_bytes = holder.held_bytes // part
        holder.held_bytes -= size_bytes
        self.shared.give_back(size_bytes)
        self._forget_told()

    @precondition(lambda self: bool(self.waiting))
    @rule(number=st.integers(0, 3))
    def forget(self, number: int) -> None:
        self.waiting.pop(self.holders[number], None)
        self.shared.remove(self.holders[number])
        self._forget_told()

    @invariant()
    def what_is_held_is_the_sum(self) -> None:
        assert self.shared.held_bytes == sum(holder.held_bytes for holder in self.holders)

    @invariant()
    def the_bound_holds_but_for_a_single_one(self) -> None:
        assert self.shared.held_bytes <= BYTES_MAX or sum(bool(holder.held_bytes) for holder in self.holders) == 1

    @invariant()
    def somebody_waits_only_if_there_is_no_room(self) -> None:
        assert self.shared.has_waiting == bool(self.waiting)
        if self.waiting:
            assert self.shared.held_bytes + next(iter(self.waiting.values())) > BYTES_MAX
            assert self.shared.held_bytes


TestSharing = Sharing.TestCase
TestSharing.settings = settings(deadline=None, derandomize=True, database=None, max_examples=examples(200))
