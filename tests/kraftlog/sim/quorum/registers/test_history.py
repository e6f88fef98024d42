"""A history: the clients' operations and answers, in order, saved and loaded."""

import random
from pathlib import Path

import pytest

from kraftlog.sim.quorum.registers.history import History, Kind, Operation, Outcome, load
from tests.kraftlog.sim.quorum.registers.builders import AtomicRegisters


def _write(history: History, value: str = "a", key: str = "k") -> Operation:
    return history.begin(client_id=1, kind=Kind.WRITE, key=key, value=value, invoked_at=10)


def test_operations_are_numbered_in_the_order_in_which_they_begin() -> None:
    history = History()
    assert [_write(history, value).operation_id for value in "abc"] == [1, 2, 3]
    assert [operation.value for operation in history.operations] == ["a", "b", "c"]


def test_acknowledge_keeps_what_the_client_was_told() -> None:
    history = History()
    operation = _write(history)
    history.acknowledge(operation, 12, offset=7, found="z")
    assert (operation.outcome, operation.offset, operation.found) == (Outcome.ACKNOWLEDGED, 7, "z")
    assert (operation.completed_at, operation.is_found_known, operation.has_written) == (12, True, True)
    assert history.acknowledged_count == 1
    assert history.completed == [operation]


def test_what_writes_do_not_tell_is_not_known() -> None:
    history = History(writes_tell_found=False)
    operation = _write(history)
    history.acknowledge(operation, 12, offset=7)
    assert not operation.is_found_known
    read = history.begin(client_id=1, kind=Kind.READ, key="k", invoked_at=13)
    history.acknowledge(read, 14, offset=8, found="a")
    assert (read.is_found_known, read.found) == (True, "a")


def test_a_refused_operation_has_not_written_and_a_lost_one_may_have() -> None:
    history = History()
    refused, lost, pending = _write(history, "a"), _write(history, "b"), _write(history, "c")
    history.refuse(refused, 11)
    history.lose_track(lost, 12)
    assert [operation.may_have_written for operation in (refused, lost, pending)] == [False, True, True]
    assert history.completed == [refused, lost]
    assert history.acknowledged_count == 0


def test_seen_end_offset_is_after_a_write_and_at_the_bound_of_a_read() -> None:
    history = History()
    write = _write(history)
    swap = history.begin(client_id=1, kind=Kind.COMPARE_AND_SET, key="k", value="b", invoked_at=11)
    read = history.begin(client_id=1, kind=Kind.READ, key="k", invoked_at=12)
    history.acknowledge(write, 20, offset=5)
    history.acknowledge(swap, 20, offset=6, found="a", swapped=False)
    history.acknowledge(read, 20, offset=7, found="a")
    assert [operation.seen_end_offset for operation in (write, swap, read)] == [6, 6, 7]


@pytest.mark.parametrize("complete_again", ["acknowledge", "refuse", "lose_track"])
def test_an_outcome_does_not_change(complete_again: str) -> None:
    history = History()
    operation = _write(history)
    history.refuse(operation, 11)
    arguments = {"offset": 1} if complete_again == "acknowledge" else {}
    with pytest.raises(ValueError, match="knows its outcome already"):
        getattr(history, complete_again)(operation, 12, **arguments)
    assert operation.outcome is Outcome.REFUSED
    assert history.completed == [operation]


def test_time_does_not_go_back() -> None:
    history = History()
    first, second = _write(history, "a"), _write(history, "b")
    with pytest.raises(ValueError, match="it is 10 already"):
        history.refuse(first, 9)
    history.refuse(first, 20)
    with pytest.raises(ValueError, match="it is 20 already"):
        history.refuse(second, 19)


def test_a_value_is_written_once_per_key() -> None:
    history = History()
    first = _write(history)
    _write(history, key="other")
    with pytest.raises(ValueError, match="was written to 'k' before"):
        _write(history)
    assert history.writer_of("k", "a") is first
    assert history.writer_of("k", "b") is None


@pytest.mark.parametrize(("kind", "value"), [(Kind.READ, "a"), (Kind.WRITE, None), (Kind.COMPARE_AND_SET, None)])
def test_only_writes_have_a_value(kind: Kind, value: str | None) -> None:
    history = History()
    with pytest.raises(ValueError, match="only writes and compare-and-sets have one"):
        history.begin(client_id=1, kind=kind, key="k", value=value, invoked_at=0)
    assert history.operations == []


def test_by_key_keeps_the_order() -> None:
    history = History()
    operations = [_write(history, value, key) for value, key in (("a", "x"), ("b", "y"), ("c", "x"))]
    assert history.by_key() == {"x": [operations[0], operations[2]], "y": [operations[1]]}


def test_saved_operations_come_back(tmp_path: Path) -> None:
    registers = AtomicRegisters(random.Random(1), keys=2)
    registers.run(200)
    registers.history.save(tmp_path / "history.jsonl")
    assert load(tmp_path / "history.jsonl") == registers.history.operations


def test_a_line_that_is_no_operation_is_named(tmp_path: Path) -> None:
    history = History()
    _write(history)
    path = tmp_path / "history.jsonl"
    history.save(path)
    path.write_text(path.read_text() + '{"kind": "write"}\n')
    with pytest.raises(ValueError, match="line 2 is not an operation"):
        load(path)


def test_an_operation_tells_its_story() -> None:
    history = History()
    swap = history.begin(client_id=3, kind=Kind.COMPARE_AND_SET, key="k", value="b", expected="a", invoked_at=11)
    assert str(swap) == "operation 1 of client 3, set k = b if it is a, 11 to ?: pending"
    history.acknowledge(swap, 20, offset=6, found="c")
    assert str(swap).endswith("11 to 20: acknowledged, not done, found c, sees below offset 6")
