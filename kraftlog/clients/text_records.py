"""Records as lines of text, in the form of Kafka's console producer and consumer. Pure.

    trace:a1,origin:web <TAB> key <SEPARATOR> value        with --headers and --key-separator

Text is for people: a value with a line's end in it, or a header with a comma, cannot be read back unchanged. JSON can.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kraftlog.clients.records import Headers, InvalidLine, Record

NULL: Final = b"null"
GAP: Final = b"\t"
"""Between the parts of a printed line, and after the headers of a line that is read."""


@dataclass(frozen=True, slots=True)
class Shown:
    """The parts of a record that are printed before its value."""

    offsets: bool = False
    timestamps: bool = False
    headers: bool = False
    keys: bool = False


def text_of(record: Record, shown: Shown) -> bytes:
    """The line of a record that was read: the wanted parts, separated by tabs, and its value last."""
    parts: list[bytes] = []
    if shown.offsets:
        parts.append(f"{record.partition}:{record.offset}".encode())
    if shown.timestamps:
        parts.append(NULL if record.timestamp_ms is None else str(record.timestamp_ms).encode())
    if shown.headers:
        parts.append(b",".join(name.encode() + b":" + _or_null(value) for name, value in record.headers))
    if shown.keys:
        parts.append(_or_null(record.key))
    return GAP.join((*parts, _or_null(record.value)))


def _or_null(data: bytes | None) -> bytes:
    return NULL if data is None else data


def record_from_text(line: bytes, key_separator: bytes | None, *, has_headers: bool) -> Record:
    """The record of a line. Without a separator all of it is the value. Raises InvalidLine."""
    headers: Headers = ()
    if has_headers:
        written, gap, line = line.partition(GAP)
        if not gap:
            raise InvalidLine("it has no tab, after which key and value begin; begin a line without headers with a tab")
        headers = _headers(written)
    if key_separator is None:
        return Record(line, headers=headers)
    key, separator, value = line.partition(key_separator)
    if not separator:
        raise InvalidLine(
            f"it has no {key_separator.decode()!r} between key and value; add it, or give another separator"
        )
    return Record(value, key, headers)


def _headers(written: bytes) -> Headers:
    return tuple(map(_header, written.split(b","))) if written else ()


def _header(written: bytes) -> tuple[str, bytes]:
    name, colon, value = written.partition(b":")
    if not colon:
        raise InvalidLine(f"its header {written.decode(errors='replace')!r} is not name:value")
    try:
        return name.decode(), value
    except UnicodeDecodeError:
        raise InvalidLine(f"the name of its header {written.decode(errors='replace')!r} is not UTF-8") from None
