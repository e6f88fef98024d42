"""Kafka's rules for topic names (CT-21)."""

from __future__ import annotations

import pytest

from kraftbase.errors import ApiError, ErrorCode
from statemachine.words.names import check_name_lengths, check_topic_name, collision_key, may_collide, quoted


@pytest.mark.parametrize("name", ["a", "clicks", "A-1_b.c", "...", "-", "_", "x" * 249, "0"])
def test_legal_names_are_taken(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "ä", "a\n", "a\x00", "t\u0660", "a:b"])
def test_illegal_names_are_an_invalid_topic(name: str) -> None:
    with pytest.raises(ApiError) as refusal:
        check_topic_name(name)
    assert refusal.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_the_name_of_the_metadata_log_is_an_invalid_request() -> None:
    with pytest.raises(ApiError) as refusal:
        check_topic_name("__cluster_metadata")
    assert refusal.value.code is ErrorCode.INVALID_REQUEST


def test_a_message_shows_a_hundred_characters_of_a_name() -> None:
    assert quoted("a'b") == repr("a'b")
    assert quoted("x" * 100) == f"'{'x' * 100}'"
    assert quoted("x" * 10_000_000) == f"'{'x' * 100}'..."


def test_a_name_of_more_than_a_thousand_characters_is_an_invalid_request() -> None:
    check_name_lengths(["x" * 1_000, ""])
    with pytest.raises(ApiError, match="1001 characters") as refusal:
        check_name_lengths(["a", "x" * 1_001])
    assert refusal.value.code is ErrorCode.INVALID_REQUEST
    assert len(str(refusal.value)) < 250


def test_names_collide_that_differ_in_dot_and_underscore_only() -> None:
    assert collision_key("a.b_c") == collision_key("a_b.c") != collision_key("ab.c")
    assert may_collide("a.b") and may_collide("a_b") and not may_collide("a-b")
