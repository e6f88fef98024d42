"""DescribeUserScramCredentials: kafka-configs wants an answer, and nobody has credentials (DB-111)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftbase.errors import ErrorCode
from kraftlog.broker.apis.scram_credentials import DescribeUserScramCredentialsApi
from kraftlog.kafka.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from tests.kraftlog.broker.broker_world import BrokerWorld
from tests.kraftlog.broker.services import services

MISSING, TWICE = ErrorCode.RESOURCE_NOT_FOUND, ErrorCode.DUPLICATE_RESOURCE


@pytest.mark.parametrize(
    ("users", "found"),
    [
        (None, []),
        ((), []),
        (("alice",), [("alice", MISSING)]),
        (("alice", "bob", "alice"), [("alice", TWICE), ("bob", MISSING)]),
    ],
)
def test_db111_nobody_has_credentials(
    tmp_path: Path, users: tuple[str, ...] | None, found: list[tuple[str, int]]
) -> None:
    world = BrokerWorld(tmp_path)
    named = None if users is None else tuple(UserName(name=of) for of in users)
    body = DescribeUserScramCredentialsRequest(users=named)
    answer = world.answer_to(
        DescribeUserScramCredentialsApi(services()).handle, body, 0, DescribeUserScramCredentialsResponse
    )
    assert answer.error_code == ErrorCode.NONE
    assert [(of.user, of.error_code) for of in answer.results] == found
    assert all(not of.credential_infos for of in answer.results)
