"""What decisions read of a large cluster: only as much as they need, whatever is uncommitted."""

from __future__ import annotations

import pytest

from kraftlog.controller.operations.topics import delete_topics
from kraftpb.v1.admin_pb2 import DeleteTopicsRequest, TopicReference
from tests.statemachine.builders import broker, partition, remove_topic, topic
from tests.statemachine.reading import rows_read
from tests.statemachine.states import Metadata, metadata

TOPICS, PARTITIONS_EACH = 10, 50
LIMIT = 5


@pytest.fixture
def large() -> Metadata:
    """All partitions are led by broker 1."""
    records = [topic(f"t{number}", number) for number in range(TOPICS)]
    records += [partition(number, part) for number in range(TOPICS) for part in range(PARTITIONS_EACH)]
    return metadata(broker(1), broker(2), *records)


def test_a_page_costs_a_page_while_a_topic_is_being_removed(large: Metadata) -> None:
    large.append([remove_topic(0)])
    with rows_read() as read:
        page = large.all_partitions(None, LIMIT)
        led = large.partitions_led_by(1, None, LIMIT)
        assert large.leads_any(1)
    assert len(page) == len(led) == LIMIT
    assert read["partitions"] <= 3 * (PARTITIONS_EACH + LIMIT)  # at most the removed rows, and the page after them


def test_a_page_costs_a_page_whatever_is_uncommitted_before_and_behind_it(large: Metadata) -> None:
    large.append([topic("new", 100), *(partition(100, part) for part in range(PARTITIONS_EACH))])
    large.append([partition(0, part) for part in range(PARTITIONS_EACH)])
    ordered = large.all_partitions()
    middle = ordered[len(ordered) // 2]
    after = (middle.topic_id, middle.partition_id)
    with rows_read() as read:
        page = large.all_partitions(after, LIMIT)
        led = large.partitions_led_by(1, after, LIMIT)
    assert page == led == ordered[len(ordered) // 2 + 1 :][:LIMIT]
    assert read["partitions"] <= 2 * LIMIT


def test_the_end_is_found_among_committed_and_uncommitted(large: Metadata) -> None:
    large.append([remove_topic(TOPICS - 1), topic("new", 100), partition(100, 0)])
    last = large.all_partitions()[-3:]
    after = (last[0].topic_id, last[0].partition_id)
    assert large.all_partitions(after, LIMIT) == last[1:]
    assert (last[-1].topic_id, last[-1].partition_id) == (partition(100, 0).partition.topic_id, 0)


def test_to_delete_a_topic_none_of_its_partitions_is_read(large: Metadata) -> None:
    request = DeleteTopicsRequest(topics=[TopicReference(name=f"t{number}") for number in range(TOPICS)])
    with rows_read() as read:
        records, response = delete_topics(large, request, now_ms=1)
        large.append(records)
    assert [answer.error_code for answer in response.topics] == [0] * TOPICS
    assert read["partitions"] == 0
    assert large.all_partitions() == []
