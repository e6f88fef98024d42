"""RegisterBroker (table 5.3): epochs, and every error."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kraftpb.v1 import admin_pb2
from kraftpb.v1.metadata_pb2 import BrokerEndpoint
from raft.core.errors import ErrorCode
from statemachine import queries
from statemachine.ids import id_to_text
from tests.statemachine.builders import CLUSTER_ID, an_id, register, registration
from tests.statemachine.conftest import Bench

Request = admin_pb2.RegisterBrokerRequest


async def test_the_brokers_epoch_is_the_offset_of_its_record(bench: Bench) -> None:
    first = await bench.done(register(1))
    second = await bench.done(register(2))
    assert first.register_broker.broker_epoch == first.end_offset - 1
    assert second.register_broker.broker_epoch == first.end_offset
    found = queries.list_brokers(bench.store.reader)
    assert [(broker.broker_id, broker.broker_epoch) for broker in found] == [
        (1, first.register_broker.broker_epoch),
        (2, second.register_broker.broker_epoch),
    ]


async def test_brokers_registered_together_have_their_own_epochs(held: Bench) -> None:
    results = await held.submit(register(4), register(5), register(6))
    held.log.commit()
    await held.machine.wait_applied(held.log.log_end_offset, 20_000)
    epochs = [result.register_broker.broker_epoch for result in results]
    assert epochs == [result.end_offset - 1 for result in results]
    stored = {broker.broker_id: broker.broker_epoch for broker in queries.list_brokers(held.store.reader)}
    assert [stored[broker_id] for broker_id in (4, 5, 6)] == epochs


async def test_a_registration_says_everything_that_was_given(bench: Bench) -> None:
    request = registration(1, log_dirs=[901, 902])
    request.cluster_id = CLUSTER_ID
    request.rack = "r1"
    request.listeners.append(BrokerEndpoint(name="SSL", host="::1", port=9443, security_protocol=1))
    await bench.done(admin_pb2.Operation(register_broker=request))
    (broker,) = queries.list_brokers(bench.store.reader)
    assert broker.incarnation_id == id_to_text(an_id(501))
    assert broker.rack == "r1"
    assert broker.listeners == (("PLAINTEXT", "localhost", 9093, 0), ("SSL", "::1", 9443, 1))
    assert broker.log_dirs == (id_to_text(an_id(901)), id_to_text(an_id(902)))
    assert not broker.fenced  # until brokers send heartbeats


async def test_the_same_incarnation_keeps_its_epoch_and_writes_only_what_is_new(bench: Bench) -> None:
    first = await bench.done(register(1))
    again = await bench.done(register(1))
    assert again.register_broker.broker_epoch == first.register_broker.broker_epoch
    assert again.end_offset == -1
    moved = await bench.done(register(1, log_dirs=[901, 999]))
    assert moved.register_broker.broker_epoch == first.register_broker.broker_epoch
    assert moved.end_offset == first.end_offset + 1


async def test_another_incarnation_has_another_epoch(bench: Bench) -> None:
    first = await bench.done(register(1))
    second = await bench.done(register(1, incarnation=777))
    assert second.register_broker.broker_epoch == second.end_offset - 1 > first.register_broker.broker_epoch
    (broker,) = queries.list_brokers(bench.store.reader)
    assert broker.incarnation_id == id_to_text(an_id(777))


def set_to(field: str, value: object) -> Callable[[Request], None]:
    return lambda request: setattr(request, field, value)


def clear(field: str) -> Callable[[Request], None]:
    return lambda request: request.ClearField(field)  # type: ignore[arg-type]


def add_listener(**values: object) -> Callable[[Request], None]:
    return lambda request: request.listeners.append(BrokerEndpoint(**values))  # type: ignore[arg-type]


def add_log_dir(log_dir: bytes) -> Callable[[Request], None]:
    return lambda request: request.log_dirs.append(log_dir)


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (set_to("cluster_id", "another"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (set_to("cluster_id", ""), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (set_to("broker_id", -1), ErrorCode.INVALID_REQUEST),
        (set_to("incarnation_id", b""), ErrorCode.INVALID_REQUEST),
        (set_to("incarnation_id", b"short"), ErrorCode.INVALID_REQUEST),
        (set_to("incarnation_id", bytes(16)), ErrorCode.INVALID_REQUEST),
        (set_to("rack", ""), ErrorCode.INVALID_REQUEST),
        (clear("listeners"), ErrorCode.INVALID_REGISTRATION),
        (add_listener(name="PLAINTEXT", host="h", port=1), ErrorCode.INVALID_REGISTRATION),
        (add_listener(name="", host="h", port=1), ErrorCode.INVALID_REGISTRATION),
        (add_listener(name="X", host="", port=1), ErrorCode.INVALID_REGISTRATION),
        (add_listener(name="X", host="h" * 256, port=1), ErrorCode.INVALID_REGISTRATION),
        (add_listener(name="X", host="h", port=0), ErrorCode.INVALID_REGISTRATION),
        (add_listener(name="X", host="h", port=65536), ErrorCode.INVALID_REGISTRATION),
        (lambda request: request.listeners.extend([BrokerEndpoint()] * 100), ErrorCode.INVALID_REGISTRATION),
        (lambda request: request.log_dirs.extend([b""] * 1_000), ErrorCode.INVALID_REGISTRATION),
        (clear("log_dirs"), ErrorCode.INVALID_REGISTRATION),
        (add_log_dir(bytes(16)), ErrorCode.INVALID_REGISTRATION),
        (add_log_dir((99).to_bytes(16, "big")), ErrorCode.INVALID_REGISTRATION),
        (add_log_dir(b"short"), ErrorCode.INVALID_REGISTRATION),
        (add_log_dir(an_id(901)), ErrorCode.INVALID_REGISTRATION),
        (add_log_dir(an_id(902)), ErrorCode.INVALID_REGISTRATION),
    ],
)
async def test_each_error_has_kafkas_name_and_writes_nothing(
    bench: Bench, spoil: Callable[[Request], None], error: ErrorCode
) -> None:
    await bench.with_brokers(2)
    end = bench.log.log_end_offset
    request = registration(1)
    spoil(request)
    result = await bench.run(admin_pb2.Operation(register_broker=request))
    assert result.error_code == error
    assert result.error_message
    assert result.end_offset == -1
    assert bench.log.log_end_offset == end


async def test_a_log_directory_of_a_broker_that_is_not_committed_yet_is_taken_too(held: Bench) -> None:
    results = await held.submit(register(4), register(5, log_dirs=[904]))
    assert [result.error_code for result in results] == [ErrorCode.INVALID_REGISTRATION]
    assert "broker 4" in results[0].error_message
    held.log.commit()
