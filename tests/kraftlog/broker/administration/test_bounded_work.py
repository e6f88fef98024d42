"""Each API that a broker offers, with its largest and its most repetitive request: how much work goes on at a time.

Work is counted in calls of functions, not in time: each step is a slice here, and so a slice is the least that the loop
waits for. The bound of all requests is set to `ELEMENTS_BOUND`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from _lsprof import Profiler
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

import pytest

from kraftbase.errors import TopicAlreadyExistsError
from kraftlog import broker, kafka, network, replicas, storage
from kraftlog.admin.client.client import NewTopic
from kraftlog.kafka import apis
from kraftlog.kafka.apis import NAMES, OWN_NAMES, OWN_SOFTWARE, all_apis, own_apis
from kraftlog.kafka.codec import encode
from kraftlog.kafka.connections import FEW_ELEMENTS, ClientConnection
from kraftlog.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftlog.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from kraftlog.kafka.notation import Message
from kraftlog.network import connection as connection_module
from kraftlog.network import large_requests as large_requests_module
from kraftlog.network import turns as turns_module
from tests.kraftlog.broker.administration.world import AdministrationWorld
from tests.kraftlog.broker.largest_requests import SHAPES, TOPIC, request_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

ELEMENTS_BOUND: Final = 1_200
ELEMENTS: Final = 640
"""Half of these are more than what is handled at once."""
AT_ONCE_LONGER: Final = {"CreateTopics": ELEMENTS_BOUND, "CreatePartitions": ELEMENTS_BOUND}
"""Some 500 of these elements are one operation for the controller, which is put together at once."""
CALLS_MORE_MAX: Final = 200
"""In a slice, for twice as many elements: a pass through all of them takes more, with one call for each."""
FREED_MAX: Final = 1.5
"""Containers in a slice, for each element of the request: 20 ms of the largest one."""
OF_BROKER: Final = tuple(f"{Path(room.__path__[0])}/" for room in (broker, network, replicas, storage))
OF_MESSAGES: Final = (
    f"{Path(kafka.__path__[0])}/",
    *(f"<{message.__name__}" for api in (*all_apis(), *own_apis()) for message in (api.request, api.response)),
)
"""What the client of the test does, too, in turns of its own."""

BYTES_PER_BYTE: Final = 64
"""An answer has at most so many times the bytes of its request, and `ANSWER_BYTES`."""
ANSWER_BYTES: Final = 400_000
"""All configs of a broker and of a topic with their documentation, and the like."""


@pytest.fixture
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "SLICE_SECONDS", 0.0)
    monkeypatch.setattr(large_requests_module, "SLICE_SECONDS", 0.0)
    monkeypatch.setattr(turns_module, "TURN_SECONDS", 0.0)
    monkeypatch.setattr(apis, "ELEMENTS_MAX", ELEMENTS_BOUND)
    monkeypatch.setattr(apis, "CHANGES_MAX", ELEMENTS_BOUND)


@pytest.fixture
def freed() -> list[int]:
    """How many more containers each of these turns has freed than made, in those without garbage collection.

    The collector counts them, and that count takes no time. To count all blocks of memory took longer than the rest.
    """
    return []


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, freed: list[int]) -> Iterator[list[int]]:
    """How many functions the broker has called in each turn of the loop that had something for it.

    So what is done with an answer of the controller counts, and the controller, which is in this process, does not. Nor
    do turns of the test's client count, in which garbage collection may close generators of the broker. Nothing counts
    unless the client waits for an answer whose work is measured.
    """
    counts: list[int] = []
    run = asyncio.Handle._run
    profiler = Profiler(builtins=True)

    def counted(handle: asyncio.Handle) -> None:
        if not Client.is_measured:
            run(handle)
            return
        profiler.clear()
        containers = gc.get_count()[0]
        client_turns = Client.turns
        profiler.enable()
        try:
            run(handle)
        finally:
            profiler.disable()
            containers -= gc.get_count()[0]
            if Client.turns == client_turns and (count := calls_for_broker(profiler.getstats())):
                counts.append(count)
                freed.append(containers)

    monkeypatch.setattr(asyncio.Handle, "_run", counted)
    yield counts


def calls_for_broker(stats: list[Any]) -> int:
    """How many functions the broker's code and the messages' was, and has called of those that are written in C.

    0 if none is the broker's.
    """
    of_broker = of_messages = 0
    for entry in stats:
        if isinstance(entry.code, str) or not (whose := owner(entry.code.co_filename)):
            continue
        count = entry.callcount + sum(of.callcount for of in entry.calls or () if isinstance(of.code, str))
        if whose == "broker":
            of_broker += count
        else:
            of_messages += count
    return of_broker + of_messages if of_broker else 0


@cache
def owner(file: str) -> str:
    """Whose code is in this file; nothing if it is not counted."""
    if file.startswith(OF_BROKER):
        return "broker"
    return "messages" if file.startswith(OF_MESSAGES) else ""


# --- a client ---------------------------------------------------------------------------------------------------------


class Client:
    """A connection to the broker of the world."""

    turns = 0
    """How often any client has sent or read something: the turn of the loop in which it did so is the client's."""
    is_measured = False
    """Whether a client waits for an answer whose work is measured."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self._connection = ClientConnection("bounded")
        self.answer_bytes = 0

    @classmethod
    async def connect(cls, world: AdministrationWorld) -> Client:
        return cls(*await asyncio.open_connection("127.0.0.1", world.broker.ports["PLAINTEXT"]))

    def send(self, request: Message, version: int) -> None:
        Client.turns += 1
        self.writer.write(b"".join(self._connection.send(request, version)))

    async def receive(self) -> Message | None:
        """The next answer; None if the connection is closed."""
        while (response := self._connection.next_event()) is None:
            data = await self._reader.read(1 << 20)
            Client.turns += 1
            self.answer_bytes += len(data)
            if not data:
                return None
            self._connection.receive_data(data)
        return response.body

    async def ask(self, request: Message, version: int) -> Message | None:
        self.send(request, version)
        return await self.receive()

    async def ask_measured(self, request: Message, version: int) -> Message | None:
        """Ask, and have the work for it counted."""
        Client.is_measured = True
        try:
            return await self.ask(request, version)
        finally:
            Client.is_measured = False


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
@pytest.mark.parametrize("shape", [*SHAPES[:2], pytest.param(SHAPES[2], marks=pytest.mark.slow)])
async def test_no_request_of_any_api_does_much_in_a_slice(
    world: AdministrationWorld, calls: list[int], freed: list[int], shape: str
) -> None:
    await topic(world)
    versions = await offered(world)
    with_arrays, too_much = set(), []
    for name, version in versions.items():
        elements = AT_ONCE_LONGER.get(name, ELEMENTS)
        request = request_of(name, version, shape, elements)
        if request is None:
            continue
        with_arrays.add(name)
        size_bytes = len(encode(request, version))
        client = await Client.connect(world)
        # By the second one what reads and writes this version is made.
        await client.ask(cast(Message, request_of(name, version, shape, elements // 8)), version)
        calls.clear()
        await client.ask_measured(cast(Message, request_of(name, version, shape, elements // 2)), version)
        few = max(calls)
        if shape == "each its own":
            gc.collect()
            gc.disable()
        calls.clear()
        freed.clear()
        client.answer_bytes = 0
        answer = await client.ask_measured(request, version)
        assert answer is not None, f"{name}, {shape}: the connection is closed"
        assert len(calls) > elements / FEW_ELEMENTS, f"{name}, {shape}: handled in {len(calls)} slices"
        if max(calls) > few + CALLS_MORE_MAX:
            too_much.append(f"{name}: {max(calls)} calls in one of {len(calls)} slices; {few} with half of it")
        if not gc.isenabled() and max(freed) > FREED_MAX * elements:  # else it may be what garbage collection has freed
            too_much.append(f"{name}: {max(freed)} containers are freed in one slice")
        if client.answer_bytes > BYTES_PER_BYTE * size_bytes + ANSWER_BYTES:
            too_much.append(f"{name}: {client.answer_bytes} bytes for {size_bytes}")
        client.writer.close()
        if not gc.isenabled():
            del request, answer
            if (left := gc.collect()) > elements // 5:
                too_much.append(f"{name}: {left} objects are left in cycles, to be found in one go later")
            gc.enable()
    assert not too_much, f"{shape}: " + "; ".join(too_much)
    assert {"Produce", "Fetch", "Metadata", "DescribeConfigs", "CreateTopics", "ListOffsets"} <= with_arrays


@pytest.mark.usefixtures("short_slices")
async def test_a_request_of_any_api_above_the_bound_ends_its_connection(world: AdministrationWorld) -> None:
    for name, version in (await offered(world)).items():
        request = request_of(name, version, "each its own", 2 * ELEMENTS_BOUND)
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
    answer = await client.ask(DescribeConfigsRequest(resources=(*(one for _ in range(ELEMENTS_BOUND - 9)), other)), 3)
    client.writer.close()
    assert isinstance(answer, DescribeConfigsResponse)
    assert [(result.error_code, len(result.configs) > 1) for result in answer.results] == [(0, True), (0, False)]
