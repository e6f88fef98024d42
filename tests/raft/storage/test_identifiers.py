"""Ids as text."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftbase.errors import ConfigurationError
from kraftbase.uuids import random_cluster_id, random_uuid, uuid_from_text, uuid_to_text


@given(st.integers(0, 2**128 - 1))
def test_an_id_survives_its_text(value: int) -> None:
    text = uuid_to_text(UUID(int=value))
    assert len(text) == 22
    assert uuid_from_text(text) == UUID(int=value)


def test_the_text_of_an_id_is_kafkas() -> None:
    """FM-03."""
    assert uuid_to_text(UUID(int=1)) == "AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.mark.parametrize(
    "text",
    ["", "A", "A" * 21, "A" * 23, "A" * 22 + "==", "A" * 21 + "R", "A" * 21 + "+", "A" * 21 + "/", "ä" * 22, " " * 22],
)
def test_text_that_no_id_has_is_refused_and_named(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is not an id: it must be"):
        uuid_from_text(text)


def test_random_ids_differ_and_do_not_look_like_options() -> None:
    texts = {random_cluster_id() for _ in range(200)}
    assert len(texts) == 200
    assert not any(text.startswith("-") for text in texts)
    assert random_uuid().version == 4
