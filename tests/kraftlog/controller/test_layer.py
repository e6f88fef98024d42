"""A layer of the overlay keeps SQLite's order, whatever is put, drained and removed between two reads."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kraftbase.types import Offset
from kraftlog.controller.layer import Layer
from statemachine.tables.table import Key, key_to_sql

KEYS = st.tuples(st.integers(0, 5).map(lambda number: bytes([255 - number]) * 16), st.integers(0, 12))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, st.booleans()),
        st.tuples(st.just("remove all"), KEYS),
        st.tuples(st.just("drain"), st.integers(0, 40)),
        st.tuples(st.just("look"), KEYS, KEYS, st.integers(0, 2)),
    ),
    max_size=40,
)


@given(STEPS)
def test_a_layer_yields_its_keys_in_the_order_of_sqlite(steps: list[tuple[object, ...]]) -> None:
    layer, model = Layer(), dict[Key, tuple[int, object]]()
    offset = 0
    for step in steps:
        match step:
            case ("put", key, is_set):
                offset += 1
                record = f"record {offset}" if is_set else None
                layer.put(key, record, Offset(offset))
                model[key] = (offset, record)
            case ("remove all", key):
                layer.remove_all(key[:1], Offset(offset))
                model = {other: entry for other, entry in model.items() if other[:1] != key[:1]}
            case ("drain", back):
                layer.drain(Offset(offset - back))
                model = {key: entry for key, entry in model.items() if entry[0] > offset - back}
            case ("look", after, end, size):
                look(layer, model, after, end, size)
    look(layer, model, (bytes(16), -1), (bytes([255]) * 16, 99), 0)


def look(layer: Layer, model: dict[Key, tuple[int, object]], after: Key, end: Key, size: int) -> None:
    """Both bounds, one, and none; the end may be the beginning of a key."""
    prefix = after[:size]
    for lower, upper in ((after, end), (after, end[:1]), (after, None), (None, end), (None, end[:1]), (None, None)):
        wanted = sorted(
            (key_to_sql(key), record)
            for key, (_, record) in model.items()
            if key[:size] == prefix
            and (lower is None or key_to_sql(key) > key_to_sql(lower))
            and (upper is None or key_to_sql(key)[: len(upper)] <= key_to_sql(upper))
        )
        assert [(key_to_sql(key), record) for key, record in layer.behind(prefix, lower, upper)] == wanted


def test_keys_that_nobody_asks_the_order_of_do_not_pile_up() -> None:
    layer = Layer()
    for number in range(20_000):
        layer.put((number,), "record", Offset(number + 1))
        layer.drain(Offset(number))
    assert len(layer.entries) == 1
    assert len(layer._rows._new) < 2_000


def test_keys_that_were_drained_leave_the_order_too() -> None:
    layer = Layer()
    for number in range(5_000):
        layer.put((number,), "record", Offset(number + 1))
        layer.drain(Offset(number))
        assert next(layer.behind((), None)) == ((number,), "record")
    assert len(layer._rows._ordered) < 2_000
