"""Each API that a broker offers, with its largest and its most repetitive request: how much work goes on at a time.

Work is counted in calls of functions, not in time: each step is a slice here, and so a slice is the least that the loop
waits for. The largest requests are those of `ELEMENTS` elements, as the bound of all requests is set to that.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
from collections.abc import Iterator
from typing import Any, Final, cast

import pytest

from kraftbase.errors import TopicAlreadyExistsError
from kraftlog.admin.client.client import NewTopic
from kraftlog.broker.network import connection as connection_module
from kraftlog.broker.network import turns as turns_module
from kraftlog.broker.network.connection import Connection
from kraftlog.kafka import apis
from kraftlog.kafka.apis import CHANGING, NAMES, OWN_NAMES, OWN_SOFTWARE, api_of
from kraftlog.kafka.codec import encode
from kraftlog.kafka.connections import FEW_ELEMENTS, ClientConnection
from kraftlog.kafka.layout import Layout
from kraftlog.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftlog.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from kraftlog.kafka.notation import Field, Message, Struct
from tests.kraftlog.broker.administration.world import AdministrationWorld

pytestmark = pytest.mark.asyncio(loop_scope="module")

ELEMENTS: Final = 2_000
CALLS_MAX: Final = 2_500
"""In a slice. One call for each element is a pass through a list: milliseconds, also for the largest request."""

FREED_MAX: Final = 2 * ELEMENTS
"""Blocks of memory in a slice: two for each element take 20 ms of the largest request."""

BYTES_PER_BYTE: Final = 64
"""An answer has at most so many times the bytes of its request, and `ANSWER_BYTES`."""
ANSWER_BYTES: Final = 400_000
"""All configs of a broker and of a topic with their documentation, and the like."""

TOPIC: Final = "bounded"
NAMED: Final = {"name": TOPIC, "topic": TOPIC, "topic_name": TOPIC, "resource_name": TOPIC}
TIMED: Final = {"timeout_ms": 10_000, "max_wait_ms": 0, "acks": 1}
SHAPES: Final = ("the same again and again", "each its own", "all in one")


@pytest.fixture
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "SLICE_SECONDS", 0.0)
    monkeypatch.setattr(turns_module, "TURN_SECONDS", 0.0)
    monkeypatch.setattr(apis, "ELEMENTS_MAX", ELEMENTS)
    monkeypatch.setattr(apis, "CHANGES_MAX", ELEMENTS)


@pytest.fixture
def freed() -> list[int]:
    """How many more blocks of memory each turn of a connection has freed than taken."""
    return []


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, freed: list[int]) -> Iterator[list[int]]:
    """How many functions each turn of a connection has called."""
    counts: list[int] = []
    take_turn = Connection.take_turn

    def counted(connection: Connection) -> None:
        count = 0

        def note(frame: object, event: str, arg: object) -> None:
            nonlocal count
            count += event in ("call", "c_call")

        before = sys.getprofile()
        blocks = sys.getallocatedblocks()
        sys.setprofile(note)
        try:
            take_turn(connection)
        finally:
            sys.setprofile(before)
            counts.append(count)
            freed.append(blocks - sys.getallocatedblocks())

    monkeypatch.setattr(Connection, "take_turn", counted)
    yield counts


# --- requests made of the tables --------------------------------------------------------------------------------------


def arrays(layout: Layout, struct: type[Struct]) -> list[Field]:
    return [field for field in struct.FIELDS if layout.has(field) and field.is_array]


def value_of(layout: Layout, struct: type[Struct], counts: list[int], number: int, *, distinct: bool) -> Any:
    """A struct whose arrays have `counts[0]` elements, and those in their elements `counts[1]`, and so on."""
    values: dict[str, Any] = {}
    for field in struct.FIELDS:
        if not layout.has(field):
            continue
        if field.is_array:
            count = counts[0] if counts else 1
            values[field.name] = tuple(
                element_of(layout, field, counts[1:], index, distinct=distinct) for index in range(count)
            )
        elif field.name in NAMED and field.kind == "string":
            values[field.name] = f"{TOPIC}-{number}" if distinct else NAMED[field.name]
        elif field.name in TIMED:
            values[field.name] = TIMED[field.name]
        elif field.name == "resource_type":
            values[field.name] = 2
    return struct(**values)


def element_of(layout: Layout, field: Field, counts: list[int], index: int, *, distinct: bool) -> Any:
    if field.kind == "struct":
        return value_of(layout, cast(type[Struct], field.struct), counts, index, distinct=distinct)
    number = index if distinct else 0
    of_kind: dict[str, Any] = {"string": f"{TOPIC}-{number}", "uuid": number.to_bytes(16), "bytes": b"", "bool": False}
    return of_kind.get(field.kind, number)


def elements_in(layout: Layout, value: Any) -> int:
    """How many elements all arrays of a value have."""
    count = 0
    for field in arrays(layout, type(value)):
        elements = getattr(value, field.name) or ()
        count += len(elements)
        if field.kind == "struct":
            count += sum(elements_in(layout, element) for element in elements)
    return count


def request_of(name: str, version: int, shape: str, elements: int) -> Message | None:
    """A request with about as many elements, and not more; None if the API has no arrays."""
    message = api_of(next(key for key, of in (NAMES | OWN_NAMES).items() if of == name)).request
    layout = Layout(message, version)
    if not arrays(layout, message):
        return None

    def made(count: int) -> Any:
        counts = [1, count] if shape == "all in one" else [count, 1]
        return value_of(layout, message, counts, 0, distinct=shape != SHAPES[0])

    per_count = elements_in(layout, made(20)) - elements_in(layout, made(19))
    if not per_count:  # nothing is in anything
        return request_of(name, version, SHAPES[1], elements)
    return cast(Message, made((elements - 20) // per_count))


# --- a client ---------------------------------------------------------------------------------------------------------


class Client:
    """A connection to the broker of the world."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self._connection = ClientConnection("bounded")
        self.answer_bytes = 0

    @classmethod
    async def connect(cls, world: AdministrationWorld) -> Client:
        return cls(*await asyncio.open_connection("127.0.0.1", world.broker.ports["PLAINTEXT"]))

    def send(self, request: Message, version: int) -> None:
        self.writer.write(b"".join(self._connection.send(request, version)))

    async def receive(self) -> Message | None:
        """The next answer; None if the connection is closed."""
        while (response := self._connection.next_event()) is None:
            data = await self._reader.read(1 << 20)
            self.answer_bytes += len(data)
            if not data:
                return None
            self._connection.receive_data(data)
        return response.body

    async def ask(self, request: Message, version: int) -> Message | None:
        self.send(request, version)
        return await self.receive()


async def offered(world: AdministrationWorld) -> dict[str, int]:
    """The newest version of each API that the broker offers, by its name."""
    client = await Client.connect(world)
    software = ApiVersionsRequest(client_software_name=OWN_SOFTWARE, client_software_version="1")
    answer = await client.ask(software, 4)
    client.writer.close()
    assert isinstance(answer, ApiVersionsResponse)
    return {(NAMES | OWN_NAMES)[of.api_key]: of.max_version for of in answer.api_keys}


async def topic(world: AdministrationWorld) -> None:
    with contextlib.suppress(TopicAlreadyExistsError):
        await world.client.create_topics([NewTopic(TOPIC, 2, 1)])
    await world.settle()


# --- each API ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("short_slices")
@pytest.mark.parametrize("shape", SHAPES)
async def test_no_request_of_any_api_does_much_in_a_slice(
    world: AdministrationWorld, calls: list[int], freed: list[int], shape: str
) -> None:
    await topic(world)
    versions = await offered(world)
    with_arrays, too_much = set(), []
    for name, version in versions.items():
        request = request_of(name, version, shape, ELEMENTS)
        if request is None:
            continue
        with_arrays.add(name)
        size_bytes = len(encode(request, version))
        client = await Client.connect(world)
        await client.ask(cast(Message, request_of(name, version, shape, ELEMENTS // 4)), version)
        if shape == "each its own" and name not in CHANGING:  # the controller is in this process, too
            gc.collect()
            gc.disable()
        freed.clear()
        calls.clear()  # what reads and writes this version is made by now
        client.answer_bytes = 0
        answer = await client.ask(request, version)
        assert answer is not None, f"{name}, {shape}: the connection is closed"
        assert len(calls) > ELEMENTS / FEW_ELEMENTS, f"{name}, {shape}: handled in {len(calls)} slices"
        if max(freed) > FREED_MAX:
            too_much.append(f"{name}: {max(freed)} blocks of memory are freed in one slice")
        if max(calls) > CALLS_MAX:
            too_much.append(f"{name}: {max(calls)} calls in one of {len(calls)} slices")
        if client.answer_bytes > BYTES_PER_BYTE * size_bytes + ANSWER_BYTES:
            too_much.append(f"{name}: {client.answer_bytes} bytes for {size_bytes}")
        client.writer.close()
        if not gc.isenabled():
            del request, answer
            if (left := gc.collect()) > ELEMENTS:
                too_much.append(f"{name}: {left} objects are left in cycles, to be found in one go later")
            gc.enable()
    assert not too_much, f"{shape}: " + "; ".join(too_much)
    assert {"Produce", "Fetch", "Metadata", "DescribeConfigs", "CreateTopics", "ListOffsets"} <= with_arrays


@pytest.mark.usefixtures("short_slices")
async def test_a_request_of_any_api_above_the_bound_ends_its_connection(world: AdministrationWorld) -> None:
    for name, version in (await offered(world)).items():
        request = request_of(name, version, "each its own", 2 * ELEMENTS)
        if request is not None:
            client = await Client.connect(world)
            assert await client.ask(request, version) is None, name
            client.writer.close()


@pytest.mark.usefixtures("short_slices")
async def test_configs_of_one_topic_are_described_once_however_often_it_is_named(world: AdministrationWorld) -> None:
    await topic(world)
    one = DescribeConfigsResource(resource_type=2, resource_name=TOPIC, configuration_keys=None)
    other = DescribeConfigsResource(resource_type=2, resource_name=TOPIC, configuration_keys=("retention.ms",))
    client = await Client.connect(world)
    answer = await client.ask(DescribeConfigsRequest(resources=(*(one for _ in range(ELEMENTS - 9)), other)), 3)
    client.writer.close()
    assert isinstance(answer, DescribeConfigsResponse)
    assert [(result.error_code, len(result.configs) > 1) for result in answer.results] == [(0, True), (0, False)]
