"""What a failure with large messages shows: the failure, and not a warning about the size of its report."""

from __future__ import annotations

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from kraftpb.v1 import admin_pb2
from tests.raft.rpc.arbitrary_messages import arbitrary, mangled

LARGE = admin_pb2.Operation(delete_topics=admin_pb2.DeleteTopicsRequest(topics=[{"name": "x" * 70_000}] * 5))
SETTINGS = settings(database=None, derandomize=True, phases=[Phase.generate], max_examples=5)


class Failed(Exception):
    pass


def test_a_failure_with_a_large_message_is_reported_as_itself() -> None:
    @SETTINGS
    @given(st.lists(arbitrary(admin_pb2.Operation).map(lambda drawn: LARGE), min_size=1, max_size=8))
    def fail(operations: list[admin_pb2.Operation]) -> None:
        raise Failed

    with pytest.raises(Failed):
        fail()


def test_a_failure_with_large_bytes_is_reported_as_itself() -> None:
    @SETTINGS
    @given(
        st.lists(
            mangled(st.just(LARGE).map(lambda drawn: drawn.SerializeToString())).filter(
                lambda data: len(data) > 300_000
            ),
            min_size=1,
        )
    )
    def fail(mangled_bytes: list[bytes]) -> None:
        raise Failed

    with pytest.raises(Failed) as raised:
        fail()
    assert "<70000 x>" in "".join(raised.value.__notes__)
