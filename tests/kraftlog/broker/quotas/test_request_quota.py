"""The share of the loop that each client has, around a handler (DB-94)."""

from __future__ import annotations

import pytest

from kraftlog.broker.quotas.client_quotas import ClientQuotas
from kraftlog.broker.quotas.quota_usage import QuotaUsage
from kraftlog.broker.quotas.request_quota import RequestQuota
from kraftlog.kafka.apis import api_of
from kraftlog.kafka.messages.metadata import MetadataRequest, MetadataResponse
from kraftlog.kafka.notation import Message
from kraftlog.network.requests import ClientRequest, Reply, RequestContext
from tests.kraftlog.broker.quotas.test_client_quotas import changed, record, removed
from tests.kraftlog.storage.builders import StepRuntime

ALLOWED_MS = 100
"""What a client with one percent may take at once: 10 ms of each of ten seconds."""


class Slow:
    """A handler that takes its time, then answers: at once, or when it is told to."""

    def __init__(self, runtime: StepRuntime, response: Message | None) -> None:
        self.runtime = runtime
        self.response = response
        self.taken_ms = 0.0
        self.own_throttle_ms = 0
        self.is_late = False
        self.waiting: list[Reply] = []

    def __call__(self, request: ClientRequest, reply: Reply) -> None:
        self.runtime.clock_ms += self.taken_ms
        if self.is_late:
            self.waiting.append(reply)
        else:
            reply(self.response, self.own_throttle_ms)


class World:
    """A handler with a quota of one percent for anonymous users around it."""

    def __init__(self, response: Message | None = None) -> None:
        self.runtime = StepRuntime()
        self.response = MetadataResponse() if response is None else response
        self.handler = Slow(self.runtime, self.response)
        self.quotas = ClientQuotas()
        self.quota = RequestQuota(self.handler, QuotaUsage(self.quotas), self.runtime)
        changed(self.quotas, record(1, "request_percentage", user="ANONYMOUS"))
        self.answers: list[tuple[Message | None, int]] = []

    def ask(self, taken_ms: float, *, is_late: bool = False) -> None:
        self.handler.taken_ms, self.handler.is_late = taken_ms, is_late
        request = ClientRequest(
            api_of(MetadataRequest.KEY), 12, MetadataRequest(), RequestContext("127.0.0.1", "PLAINTEXT", "etl"), 100
        )
        self.quota.handle(request, self.answered)

    def answered(self, response: Message | None, throttle_ms: int = 0) -> None:
        self.answers.append((response, throttle_ms))


def test_db94_who_takes_more_than_its_share_waits_and_its_answer_says_so() -> None:
    world = World()
    world.ask(ALLOWED_MS)
    assert world.answers == [(world.response, 0)]
    world.ask(2)
    response, throttle_ms = world.answers[-1]
    assert isinstance(response, MetadataResponse)
    # 102 ms are one percent of 10.2 s, and of these 10.002 s have passed, as the beginning is counted.
    assert throttle_ms == response.throttle_time_ms == 198
    assert isinstance(world.response, MetadataResponse)
    assert world.response.throttle_time_ms == 0, "others may be given the same answer"


def test_db94_what_a_request_waits_for_is_not_counted() -> None:
    world = World()
    world.ask(50, is_late=True)
    world.runtime.clock_ms += 500
    world.handler.waiting[0](world.response)
    assert world.answers == [(world.response, 0)]


@pytest.mark.parametrize(("own_throttle_ms", "throttle_ms"), [(20, 198), (5_000, 5_000)])
def test_db94_the_longer_of_two_waits_counts(own_throttle_ms: int, throttle_ms: int) -> None:
    world = World()
    world.ask(ALLOWED_MS)
    world.handler.own_throttle_ms = own_throttle_ms
    world.ask(2)
    assert world.answers[-1][1] == throttle_ms


def test_db94_a_produce_that_is_not_answered_is_free() -> None:
    world = World()
    world.handler.response = None
    world.handler.own_throttle_ms = 7
    world.ask(1_000)
    assert world.answers == [(None, 7)]
    world.handler.response, world.handler.own_throttle_ms = world.response, 0
    world.ask(ALLOWED_MS)
    assert world.answers[-1][1] == 0


def test_an_answer_without_the_field_is_sent_as_it_is() -> None:
    world = World(MetadataRequest())
    world.ask(ALLOWED_MS)
    world.ask(2)
    assert world.answers == [(world.response, 0), (world.response, 198)]


def test_without_such_quotas_the_handler_answers_as_if_alone() -> None:
    world = World()
    removed(world.quotas, record(1, "request_percentage", user="ANONYMOUS"))
    world.handler.own_throttle_ms = 3
    world.ask(10_000)
    assert world.answers == [(world.response, 3)]
    world.ask(10_000, is_late=True)
    assert world.handler.waiting == [world.answered]
