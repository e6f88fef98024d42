"""Records as JSON lines, there and back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlog.clients.json_records import json_of, record_from_json
from kraftlog.clients.records import InvalidLine, Record

DATA = st.none() | st.binary(max_size=8) | st.text(max_size=8).map(str.encode)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
TIMESTAMPS = st.none() | st.integers(0, 2**63 - 1)
RECORDS = st.builds(
    Record,
    value=DATA,
    key=DATA,
    headers=st.lists(st.tuples(NAMES, DATA), max_size=3).map(tuple),
    timestamp_ms=TIMESTAMPS,
    partition=st.none() | st.integers(0, 2**31 - 1),
)


@given(RECORDS)
def test_a_record_comes_back_as_it_was(record: Record) -> None:
    assert record_from_json(json.dumps(json_of(record)).encode()) == record


def test_every_member_may_be_left_out_and_an_offset_is_ignored() -> None:
    assert record_from_json(b"{}") == Record(None)
    assert record_from_json(b'{"value": "v", "offset": 7}') == Record(b"v")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b'{"value": "\xff"}', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"partition": ' + b"9" * 5_000 + b"}", "not JSON"),
        (b"[]", "it is a list; write an object with the members partition, offset"),
        (b'"v"', "it is a text"),
        (b"5", "it is 5"),
        (b'{"vaule": "v"}', "the member 'vaule'"),
        (b'{"value": 5}', "its value is 5"),
        (b'{"value": ["' + b"x" * 99 + b'"]}', 'its value is ["xxx'),
        (b'{"value": {"base64": "/w"}}', "its value is not base64"),
        (b'{"value": {"base64": 5}}', "write a text, null or"),
        (b'{"value": {"base64": "", "more": 1}}', "write a text, null or"),
        (b'{"key": "\\ud800"}', "half of a surrogate pair"),
        (b'{"partition": -1}', "its partition is -1"),
        (b'{"partition": 2147483648}', "a whole number from 0 to 2147483647"),
        (b'{"partition": true}', "its partition is true"),
        (b'{"partition": 1.0}', "its partition is 1.0"),
        (b'{"timestamp": "now"}', 'its timestamp is "now"'),
        (b'{"offset": -1}', "its offset is -1"),
        (b'{"headers": {"a": "b"}}', "its headers are an object; write a list of"),
        (b'{"headers": [["a"]]}', 'the header ["a"] is not'),
        (b'{"headers": [[null, "b"]]}', "the name is a text"),
        (b'{"headers": [["\\ud800", "b"]]}', "its header has half"),
        (b'{"headers": [["a", 5]]}', "its header 'a' is 5"),
    ],
)
def test_what_is_no_record_is_refused_with_what_is_wrong(line: bytes, words: str) -> None:
    with pytest.raises(InvalidLine) as refused:
        record_from_json(line)
    assert words in str(refused.value)
