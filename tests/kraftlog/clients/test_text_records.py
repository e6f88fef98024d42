"""Records as lines of text, and what lines are."""

from __future__ import annotations

import io

import pytest

from kraftlog.clients.input_lines import lines
from kraftlog.clients.records import InvalidLine, Record
from kraftlog.clients.text_records import Shown, record_from_text, text_of


@pytest.mark.parametrize(
    ("line", "separator", "has_headers", "record"),
    [
        (b"a=b", None, False, Record(b"a=b")),
        (b"", None, False, Record(b"")),
        (b"a=b=c", b"=", False, Record(b"b=c", b"a")),
        (b"=b", b"=", False, Record(b"b", b"")),
        (b"a::b", b"::", False, Record(b"b", b"a")),
        (b"n:1,m:\tv", None, True, Record(b"v", headers=(("n", b"1"), ("m", b"")))),
        (b"n:a:b\tk=v\tw", b"=", True, Record(b"v\tw", b"k", (("n", b"a:b"),))),
        (b"\tv", None, True, Record(b"v")),
    ],
)
def test_lines_are_read(line: bytes, separator: bytes | None, has_headers: bool, record: Record) -> None:
    assert record_from_text(line, separator, has_headers=has_headers) == record


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"v", "no tab"),
        (b"n\tk=v", "header 'n' is not name:value"),
        (b"\xff:1\tk=v", "is not UTF-8"),
        (b"n:1\tv", "no '=' between key and value"),
    ],
)
def test_what_is_no_record_is_refused(line: bytes, words: str) -> None:
    with pytest.raises(InvalidLine) as refused:
        record_from_text(line, b"=", has_headers=True)
    assert words in str(refused.value)


def test_what_is_printed_of_a_record() -> None:
    record = Record(b"v", b"k", (("n", b"1"), ("m", None)), 5, 2, 7)
    assert text_of(record, Shown()) == b"v"
    assert text_of(record, Shown(offsets=True, timestamps=True, headers=True, keys=True)) == b"2:7\t5\tn:1,m:null\tk\tv"
    assert text_of(Record(None), Shown(timestamps=True, keys=True)) == b"null\tnull\tnull"


def test_lines_end_with_a_line_feed_or_the_input() -> None:
    assert list(lines(io.BytesIO(b"a\r\n\n\rb\nc"))) == [b"a", b"", b"\rb", b"c"]
    assert list(lines(io.BytesIO(b""))) == []


def test_a_line_is_as_long_as_it_may_be_and_no_longer() -> None:
    assert list(lines(io.BytesIO(b"1234\n12"), 4)) == [b"1234", b"12"]
    read = lines(io.BytesIO(b"12\n12345\n"), 4)
    assert next(read) == b"12"
    with pytest.raises(InvalidLine, match="longer than 4 bytes"):
        next(read)
