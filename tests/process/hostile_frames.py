"""Frames that no client sends, from one seed: always the same ones.

Each begins as a request that a codec writes, in any version that a broker offers, most of them for a topic that is
there. Then something is wrong with it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final, cast

from kraftlog.kafka.apis import NAMES, api_of
from kraftlog.kafka.codec import encode_pieces
from kraftlog.kafka.headers import RequestHeader
from kraftlog.kafka.layout import Layout
from kraftlog.kafka.notation import Field, Message, Struct
from tests.kraftlog.storage.builders import batch, with_field

OFFERED: Final = (0, 1, 2, 3, 10, 18, 21, 22, 23, 35, 60, 75)
"""The APIs that a broker answers to clients."""
PRODUCE: Final = 0

NUMBERS: Final = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
NAMED: Final = {"name", "topic", "topic_name"}
INDEXED: Final = {"index", "partition", "partition_index"}

RECORD_COUNT_AT: Final = 57
LAST_OFFSET_DELTA_AT: Final = 23
ATTRIBUTES_AT: Final = 21
MAGIC_AT: Final = 16
BATCH_LENGTH_AT: Final = 8


class HostileFrames:
    """Makes them. `topic` is there, empty, and has one partition."""

    def __init__(self, seed: int, topic: str, topic_id: bytes) -> None:
        self._random = Random(seed)
        self._topic = topic
        self._topic_id = topic_id

    def frames(self, count: int) -> Iterator[bytes]:
        """So many, each with its length, which may be a lie."""
        kinds: list[Callable[[], bytes]] = [
            self._odd_values, self._flipped, self._lying_length, self._lying_count, self._truncated, self._noise,
            self._unknown, self._version_30000, self._bad_batch,
        ]  # fmt: skip
        for _ in range(count):
            yield self._random.choice(kinds)()

    # --- what is wrong with them --------------------------------------------------------------------------------------

    def _odd_values(self) -> bytes:
        """A request that can be read, and has values that make no sense."""
        return _framed(self._request())

    def _flipped(self) -> bytes:
        """Some bits are others."""
        changed = bytearray(self._request())
        for _ in range(self._random.randrange(1, 9)):
            changed[self._random.randrange(len(changed))] ^= 1 << self._random.randrange(8)
        return _framed(bytes(changed))

    def _lying_length(self) -> bytes:
        """The frame says that it is another size."""
        request = self._request()
        lie = self._random.choice([0, -1, 9, 2**31 - 1, -(2**31), 104_857_601, len(request) + 1, len(request) - 1])
        return struct.pack(">i", lie) + request

    def _lying_count(self) -> bytes:
        """Four bytes say that there is a huge number of something, or a negative one."""
        changed = bytearray(self._request())
        at = self._random.randrange(8, len(changed))
        changed[at : at + 4] = self._random.choice(
            [
                b"\x7f\xff\xff\xff",
                b"\xff\xff\xff\xff",
                b"\x80\x00\x00\x00",
                b"\xff\xff\xff\xff\x0f",
                b"\x00\x7f\xff\xff",
            ]
        )
        return _framed(bytes(changed))

    def _truncated(self) -> bytes:
        """It ends too early."""
        request = self._request()
        return _framed(request[: self._random.randrange(10, max(11, len(request)))])

    def _noise(self) -> bytes:
        """No request at all."""
        return _framed(self._random.randbytes(self._random.choice([10, 11, 50, 500, 70_000])))

    def _unknown(self) -> bytes:
        """An API or a version that is not offered."""
        key, version = self._random.choice(
            [(-1, 0), (32767, 0), (-32768, -32768), (4, 0), (8, 9), (19, 7), (1, 4711), (3, -1), (0, 2), (74, 0)]
        )
        return _framed(struct.pack(">hhi", key, version, 1) + self._random.randbytes(self._random.randrange(2, 60)))

    def _version_30000(self) -> bytes:
        """ApiVersions of a version of the far future, with whatever that has."""
        return _framed(struct.pack(">hhihB", 18, 30_000, 7, -1, 0) + self._random.randbytes(self._random.randrange(40)))

    def _bad_batch(self) -> bytes:
        """A Produce that is as it should be, but for its batch."""
        good = batch(3, value=self._random.randbytes(20))
        bad = self._random.choice(
            [
                good[:-1],
                good[:60],
                good + good,
                good + b"x",
                b"",
                good[:-1] + bytes([good[-1] ^ 1]),
                with_field(good, RECORD_COUNT_AT, ">i", -1),
                with_field(good, RECORD_COUNT_AT, ">i", 2**31 - 1),
                with_field(good, LAST_OFFSET_DELTA_AT, ">i", 2**31 - 1),
                with_field(good, LAST_OFFSET_DELTA_AT, ">i", -5),
                with_field(good, ATTRIBUTES_AT, ">h", 7),
                with_field(good, ATTRIBUTES_AT, ">h", 0x20),
                with_field(good, ATTRIBUTES_AT, ">h", 0x10),
                *[good[:MAGIC_AT] + bytes([magic]) + good[MAGIC_AT + 1 :] for magic in (0, 1, 3, 255)],
                *[
                    good[:BATCH_LENGTH_AT] + struct.pack(">i", length) + good[BATCH_LENGTH_AT + 4 :]
                    for length in (0, -1, 48, 2**31 - 1, len(good) - 11)
                ],
            ]
        )
        version = self._random.choice(list(_versions(PRODUCE)))
        return _framed(
            self._header(PRODUCE, version)
            + self._body(PRODUCE, version, {"records": bad, "acks": -1, "transactional_id": None})
        )

    # --- requests -----------------------------------------------------------------------------------------------------

    def _request(self) -> bytes:
        key = self._random.choice(OFFERED)
        version = self._random.choice(list(_versions(key)))
        return self._header(key, version) + self._body(key, version, {})

    def _header(self, key: int, version: int) -> bytes:
        header = RequestHeader(
            request_api_key=key, request_api_version=version, correlation_id=self._random.getrandbits(31),
            client_id=self._random.choice([None, "", "hostile", "x" * 5_000, "\u2603"]),
        )  # fmt: skip
        return _bytes(header, api_of(key).request_header_version(version))

    def _body(self, key: int, version: int, fixed: dict[str, Any]) -> bytes:
        message = api_of(key).request
        return _bytes(cast(Message, self._struct(Layout(message, version), message, fixed)), version)

    def _struct(self, layout: Layout, kind: type[Struct], fixed: dict[str, Any]) -> Struct:
        return kind(**{of.name: self._value(layout, of, fixed) for of in kind.FIELDS if layout.has(of)})

    def _value(self, layout: Layout, field: Field, fixed: dict[str, Any]) -> Any:
        if field.name in fixed:
            return fixed[field.name]
        if not fixed and layout.can_be_null(field) and self._random.random() < 0.2:
            return None
        if field.is_array:
            count = 1 if fixed else self._random.choice([0, 1, 1, 2, 3, 40])
            return tuple(self._one(layout, field, fixed) for _ in range(count))
        return self._one(layout, field, fixed)

    def _one(self, layout: Layout, field: Field, fixed: dict[str, Any]) -> Any:
        is_aimed = bool(fixed) or self._random.random() < 0.7
        if field.kind == "struct":
            return self._struct(layout, cast(type[Struct], field.struct), fixed)
        if is_aimed and field.name in NAMED:
            return self._topic
        if is_aimed and field.name == "topic_id":
            return self._topic_id
        if is_aimed and field.name in INDEXED:
            return 0
        return self._primitive(field.kind)

    def _primitive(self, kind: str) -> Any:
        random = self._random
        if kind in NUMBERS:
            top = 2 ** NUMBERS[kind]
            return random.choice([0, 1, -1, -2, top - 1, -top, random.randrange(-top, top)])
        match kind:
            case "bool":
                return random.random() < 0.5
            case "string":
                return random.choice(["", ".", "..", "../../etc/passwd", "a" * 249, "a" * 5_000, "no-such", "\x00\n"])
            case "uuid":
                return random.choice([bytes(16), random.randbytes(16)])
            case "float64":
                return random.choice([0.0, -1.0, 1e308, float("nan"), float("inf")])
            case "uint16":
                return random.randrange(2**16)
            case _:
                return random.randbytes(random.choice([0, 1, 61, 100]))


def _versions(key: int) -> range:
    request = api_of(key).request
    return range(request.VERSIONS.lowest, request.VERSIONS.highest + 1)


def _bytes(message: Message, version: int) -> bytes:
    return b"".join(encode_pieces(message, version))


def _framed(request: bytes) -> bytes:
    return struct.pack(">i", len(request)) + request


assert all(key in NAMES for key in OFFERED)
