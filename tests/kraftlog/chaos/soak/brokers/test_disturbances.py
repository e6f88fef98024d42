"""What comes and goes beside the load, without a broker."""

from __future__ import annotations

import threading
from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError, KafkaException

from kraftlog.chaos.soak.brokers.disturbances import Disturbance, PassingTopics


class Failing(Disturbance):
    """It ends at once."""

    def work(self) -> None:
        raise ValueError("no more")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_one_that_ends_is_a_violation() -> None:
    failing = Failing("a client")
    failing.start()
    failing.stop()
    assert failing.violations == ["a client ended: ValueError('no more')"]


def test_one_that_is_stopped_is_none() -> None:
    topics = PassingTopics("localhost:1")
    before = threading.active_count()
    topics.start()
    topics.stop()
    assert (topics.violations, threading.active_count()) == ([], before)


@pytest.mark.parametrize(
    ("code", "is_done"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, True),
        (KafkaError.TOPIC_ALREADY_EXISTS, True),
        (KafkaError._TIMED_OUT, False),
    ],
)
def test_a_topic_that_is_gone_is_not_deleted_again(code: int, is_done: bool) -> None:
    answer: Future[None] = Future()
    answer.set_exception(KafkaException(KafkaError(code)))
    topics = PassingTopics("localhost:1")
    assert topics._is_done("deleted", {"passing-1": answer}) is is_done
    assert topics.counts["not deleted"] == 1
