"""What is in a credential or a token is not shown by the value itself."""

from __future__ import annotations

import pytest

from kraftlog.kafka.metadata_records import (
    DelegationTokenRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)
from kraftlog.kafka.notation import Message
from kraftlog.kafka.record_values import METADATA_RECORDS

CLOSED = (
    UserScramCredentialRecord(name="alice", mechanism=1, salt=b"salt", stored_key=b"stored", server_key=b"server"),
    RemoveUserScramCredentialRecord(name="alice", mechanism=1),
    DelegationTokenRecord(owner="alice", requester="alice", renewers=("alice",), token_id="alice"),
    RemoveDelegationTokenRecord(token_id="alice"),
    ZkMigrationStateRecord(zk_migration_state=3),
)


@pytest.mark.parametrize("record", CLOSED, ids=lambda record: type(record).__name__)
def test_a_closed_record_does_not_show_what_is_in_it(record: Message) -> None:
    assert f"{record}" == f"{record!r}" == f"{type(record).__name__}(...)"


def test_no_other_record_is_closed() -> None:
    assert {found for found in METADATA_RECORDS.values() if found.IS_CLOSED} == set(map(type, CLOSED))
    assert repr(TopicRecord(name="t")).startswith("TopicRecord(name='t', ")
