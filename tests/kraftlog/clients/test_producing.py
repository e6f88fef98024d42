"""A producer whose broker does not answer."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ConfigurationError
from kraftlog.clients import producing
from kraftlog.clients.producing import ProduceOptions, RecordProducer
from kraftlog.clients.records import Record


def test_records_without_keys_are_spread_and_keys_go_where_javas_clients_put_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By default librdkafka keeps what comes within some milliseconds together: a short input goes to one partition."""
    given: dict[str, Any] = {}
    monkeypatch.setattr(producing, "Producer", given.update)
    producing._producer([Endpoint("localhost", 9092)], ProduceOptions())
    assert (given["partitioner"], given["sticky.partitioning.linger.ms"]) == ("murmur2_random", 0)


def test_what_is_not_waited_for_counts_as_abandoned_and_is_not_named() -> None:
    named: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        endpoint = Endpoint("127.0.0.1", listening.getsockname()[1])
        producer = RecordProducer([endpoint], "t", ProduceOptions(), named.append)
        for _ in range(3):
            producer.send(Record(b"v"), "a record")
        assert producer.waiting == 3
        assert not producer.finish(0.01)
        producer.abandon()
        # Later it may have to tell of the connection, which counts as waiting, too.
        assert (named, producer.waiting) == ([], 0)
    assert (producer.deliveries.abandoned, producer.deliveries.failed, producer.deliveries.written) == (3, 0, 0)


def test_what_is_not_acknowledged_in_time_is_named() -> None:
    named: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        endpoint = Endpoint("127.0.0.1", listening.getsockname()[1])
        producer = RecordProducer([endpoint], "t", ProduceOptions(delivery_timeout_seconds=0.1), named.append)
        producer.send(Record(b"v"), "line 1")
        assert producer.finish()
    assert named == ["REQUEST_TIMED_OUT: line 1 was not written to t: Local: Message timed out"]
    assert producer.deliveries.failed == 1


def test_settings_that_contradict_each_other_are_refused() -> None:
    options = ProduceOptions(linger_ms=60_000, delivery_timeout_seconds=0.1)
    with pytest.raises(ConfigurationError, match="refuses its settings"):
        RecordProducer([Endpoint("127.0.0.1", 1)], "t", options, print)


def test_what_goes_wrong_with_a_delivery_is_raised_and_not_waited_for() -> None:
    def full(line: str) -> None:
        raise OSError(28, "No space left on device")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        endpoint = Endpoint("127.0.0.1", listening.getsockname()[1])
        producer = RecordProducer([endpoint], "t", ProduceOptions(delivery_timeout_seconds=0.1), full)
        producer.send(Record(b"v"), "line 1")
        with pytest.raises(OSError, match="No space"):
            producer.finish()
