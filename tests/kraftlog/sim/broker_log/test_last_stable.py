"""The judge of last stable offsets is shown logs, and what a broker might say of them."""

from __future__ import annotations

import pytest

from kraftlog.kafka.record_values import ControlType
from kraftlog.sim.broker_log.checkers.batches import Batch, whole_batches
from kraftlog.sim.broker_log.checkers.rules import DECIDED
from kraftlog.sim.broker_log.checkers.transactions import StableView, check_last_stable
from kraftlog.sim.broker_log.transactions import Transactions
from kraftlog.sim.engine.violation import Violation


def log(first_offset: int, kinds: str) -> list[Batch]:
    """Records of producers a and b, and the ends of their transactions, A and B, one offset each."""
    producers = {"a": Transactions(7), "b": Transactions(8)}
    found: list[Batch] = []
    for offset, kind in enumerate(kinds, first_offset):
        producer = producers[kind.lower()]
        data = bytearray(producer.records(0) if kind.islower() else producer.marker(ControlType.COMMIT, 0))
        data[:8] = offset.to_bytes(8, "big")
        found += whole_batches(data)
    return found


@pytest.mark.parametrize(
    ("batches", "high_watermark", "expected"),
    [
        (log(0, ""), 0, 0),
        (log(0, "aA"), 2, 2),
        (log(0, "aA"), 1, 0),
        (log(0, "aAb"), 3, 2),
        (log(0, "abA"), 3, 1),
        (log(0, "abBA"), 3, 0),
        (log(0, "abBA"), 4, 4),
        (log(0, "aAbb"), 2, 2),
    ],
)
def test_it_is_before_the_first_transaction_that_is_not_decided(
    batches: list[Batch], high_watermark: int, expected: int
) -> None:
    for last_stable in range(high_watermark + 2):
        view = StableView(0, high_watermark, last_stable)
        if last_stable == expected:
            check_last_stable("t-0", batches, view)
        else:
            with pytest.raises(Violation) as raised:
                check_last_stable("t-0", batches, view)
            assert str(raised.value).startswith(DECIDED)


def test_it_is_not_below_the_start_of_the_log() -> None:
    check_last_stable("t-0", log(0, "abA"), StableView(2, 3, 2))
    with pytest.raises(Violation):
        check_last_stable("t-0", log(0, "abA"), StableView(2, 3, 1))


def test_a_transaction_whose_records_are_deleted_may_hold_it_at_the_start_of_the_log() -> None:
    check_last_stable("t-0", log(5, "bB"), StableView(5, 7, 5))
    check_last_stable("t-0", log(5, "bB"), StableView(5, 7, 7))
    with pytest.raises(Violation):
        check_last_stable("t-0", log(5, "bB"), StableView(5, 7, 6))
