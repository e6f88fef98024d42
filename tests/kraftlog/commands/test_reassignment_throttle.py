"""Which configs throttle a reassignment, and what takes them back."""

from __future__ import annotations

from kraftbase.partition import TopicPartition
from kraftlog.commands.reassignment_throttle import move_of, removals, throttle_changes
from statemachine.query.cluster_descriptions import ConfigChange, ConfigChangeKind
from statemachine.words.resources import ResourceType

LEADERS, FOLLOWERS = (f"{who}.replication.throttled.replicas" for who in ("leader", "follower"))


def told(changes: list[ConfigChange]) -> list[tuple[int, str, str, str]]:
    assert {change.kind for change in changes} == {ConfigChangeKind.SET}
    return [(change.resource_type, change.resource_name, change.name, change.value) for change in changes]


def test_those_that_send_are_throttled_as_leaders_and_those_that_copy_as_followers() -> None:
    moves = {
        TopicPartition("b", 1): move_of([1, 2], [2, 3]),
        TopicPartition("b", 0): move_of([1], [3, 4]),
        TopicPartition("a", 7): move_of([5], [5]),  # nothing is copied
    }
    changes = told(throttle_changes(moves, 9))
    rates = [
        (ResourceType.BROKER, str(broker_id), f"{who}.replication.throttled.rate", "9")
        for broker_id in (1, 2, 3, 4)
        for who in ("leader", "follower")
    ]
    assert changes == [
        *rates,
        (ResourceType.TOPIC, "b", LEADERS, "0:1,1:1,1:2"),
        (ResourceType.TOPIC, "b", FOLLOWERS, "0:3,0:4,1:3"),
    ]


def test_a_list_that_is_too_long_for_a_config_is_of_all_replicas() -> None:
    moves = {TopicPartition("t", number): move_of([1], [2]) for number in range(10_000)}
    assert [value for *_, name, value in told(throttle_changes(moves, 9)) if name in (LEADERS, FOLLOWERS)] == ["*", "*"]


def test_only_throttles_are_taken_back() -> None:
    changes = removals(ResourceType.TOPIC, "t", ["retention.ms", LEADERS])
    assert changes == [ConfigChange(ResourceType.TOPIC, "t", LEADERS, ConfigChangeKind.DELETE)]
