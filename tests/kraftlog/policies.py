"""Policies for new topics, as a user writes them."""

from __future__ import annotations

from kraftlog.controller.operations.topics import PolicyViolation, TopicToCreate

NOT_A_POLICY = 7


def of_two_letters(topic: TopicToCreate) -> None:
    if len(topic.name) < 2:
        raise PolicyViolation(f"the name {topic.name!r} has one letter; choose a longer one")


class OfTwoLetters:
    def __call__(self, topic: TopicToCreate) -> None:
        of_two_letters(topic)


class Unmakeable:
    def __init__(self) -> None:
        raise RuntimeError("not today")
