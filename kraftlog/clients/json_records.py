"""Records as JSON lines: `consume --output json` prints what `produce --json` reads. Pure.

    {"partition": 0, "offset": 7, "timestamp": 1764000000000, "key": "k", "value": "v", "headers": [["trace", "a1"]]}

A key, a value or a header's value is a text, null, or `{"base64": "..."}` for bytes that are not UTF-8. Each member may
be left out: a record without a value has null. An offset is read and ignored, so that printed lines can be written
again unchanged.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from typing import Any, Final

from kraftlog.clients.records import Headers, InvalidLine, Record

MEMBERS: Final = ("partition", "offset", "timestamp", "key", "value", "headers")
BASE64: Final = "base64"
PARTITION_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1


def json_of(record: Record) -> dict[str, Any]:
    """The members of the line of a record that was read."""
    return {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": _bytes_to_json(record.key),
        "value": _bytes_to_json(record.value),
        "headers": [[name, _bytes_to_json(value)] for name, value in record.headers],
    }


def _bytes_to_json(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {BASE64: b64encode(data).decode()}


def record_from_json(line: bytes) -> Record:
    """The record of a line. Raises InvalidLine."""
    try:
        members = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidLine(f"it is not JSON ({error}); write an object, as consume --output json does") from None
    if not isinstance(members, dict):
        raise InvalidLine(f"it is {_kind(members)}; write an object with the members {', '.join(MEMBERS)}")
    unknown = [name for name in members if name not in MEMBERS]
    if unknown:
        raise InvalidLine(f"it has the member {unknown[0]!r}; the members are {', '.join(MEMBERS)}")
    _integer(members, "offset", INT64_MAX)
    return Record(
        value=_bytes_from_json(members.get("value"), "value"),
        key=_bytes_from_json(members.get("key"), "key"),
        headers=_headers(members.get("headers")),
        timestamp_ms=_integer(members, "timestamp", INT64_MAX),
        partition=_integer(members, "partition", PARTITION_MAX),
    )


def _integer(members: dict[str, Any], name: str, highest: int) -> int | None:
    value = members.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= highest:
        raise InvalidLine(f"its {name} is {_shown(value)}; write a whole number from 0 to {highest}")
    return value


def _headers(value: Any) -> Headers:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise InvalidLine(f"its headers are {_kind(value)}; write a list of [name, value]")
    return tuple(map(_header, value))


def _header(pair: Any) -> tuple[str, bytes | None]:
    if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
        raise InvalidLine(f"the header {_shown(pair)} is not [name, value]; the name is a text")
    _utf8(pair[0], "header")
    return pair[0], _bytes_from_json(pair[1], f"header {pair[0]!r}")


def _bytes_from_json(value: Any, name: str) -> bytes | None:
    match value:
        case None:
            return None
        case str():
            return _utf8(value, name)
        case {"base64": str(encoded), **rest} if not rest:
            try:
                return b64decode(encoded, validate=True)
            except ValueError as error:
                raise InvalidLine(f"its {name} is not base64 ({error}); write it with padding") from None
        case _:
            raise InvalidLine(f'its {name} is {_shown(value)}; write a text, null or {{"{BASE64}": "..."}}')


def _utf8(text: str, name: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidLine(f"its {name} has half of a surrogate pair; write such bytes as base64") from None


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:40]}..."


def _kind(value: Any) -> str:
    match value:
        case list():
            return "a list"
        case dict():
            return "an object"
        case str():
            return "a text"
        case _:
            return _shown(value)
