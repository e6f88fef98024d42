"""What a consumer tells its user while it waits. No broker is asked."""

from __future__ import annotations

from contextlib import closing
from unittest.mock import Mock

from confluent_kafka import KafkaError

from kraftbase.endpoint import Endpoint
from kraftlog.clients.consuming import RecordConsumer
from kraftlog.commands.user_messages import user_messages_to


def test_that_it_waits_is_said_once_for_all_partitions_and_texts() -> None:
    told: list[str] = []
    consumer = RecordConsumer([Endpoint("127.0.0.1", 1)], "clicks", is_committed_only=False)
    with closing(consumer), user_messages_to(told.append):
        for partition, code, text in (
            (0, KafkaError.LEADER_NOT_AVAILABLE, "after 1 s"),
            (1, KafkaError.LEADER_NOT_AVAILABLE, "after 2 s"),
            (1, KafkaError.NOT_LEADER_FOR_PARTITION, "not here"),
        ):
            message = Mock(partition=Mock(return_value=partition))
            consumer._raise_or_wait(KafkaError(code, text, retriable=True), message)
    assert told == [
        "waiting for partition 0 of 'clicks': after 1 s",
        "waiting for partition 1 of 'clicks': not here",
    ]
