"""Closed records there and back: the bytes are Kafka's, a removal has none, and it has the key of its record."""

from __future__ import annotations

import pytest

from kraftlog.kafka.metadata_records import (
    DelegationTokenRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)
from kraftlog.kafka.notation import Message
from kraftlog.kafka.record_values import encode_metadata_record
from kraftlog.offline.kafka.conversion import from_kafka
from kraftlog.offline.kafka.to_kafka import to_kafka

CREDENTIAL = UserScramCredentialRecord(name="a b", mechanism=2, salt=b"s", iterations=4096, unknown_tags=((9, b"new"),))
TOKEN = DelegationTokenRecord(owner="User:a", token_id="t1", renewers=("User:b",), expiration_timestamp=7)
PUT: list[tuple[Message, str, str]] = [
    (CREDENTIAL, "user_scram_credential", "2 a b"),
    (TOKEN, "delegation_token", "t1"),
    (ZkMigrationStateRecord(zk_migration_state=4), "zk_migration_state", ""),
]
REMOVED: list[tuple[Message, str, str]] = [
    (RemoveUserScramCredentialRecord(name="a b", mechanism=2), "remove_user_scram_credential", "2 a b"),
    (RemoveDelegationTokenRecord(token_id="t1"), "remove_delegation_token", "t1"),
]


@pytest.mark.parametrize(("record", "kind", "key"), PUT)
def test_a_record_keeps_its_bytes(record: Message, kind: str, key: str) -> None:
    ours = from_kafka(record, 0)
    assert ours is not None and ours.WhichOneof("record") == kind
    opaque = getattr(ours, kind)
    assert (opaque.key, opaque.value) == (key, encode_metadata_record(record, 0))
    assert to_kafka(ours, 30) == (record, 0)


@pytest.mark.parametrize(("record", "kind", "key"), REMOVED)
def test_a_removal_has_the_key_alone(record: Message, kind: str, key: str) -> None:
    ours = from_kafka(record, 0)
    assert ours is not None
    assert (getattr(ours, kind).key, getattr(ours, kind).value) == (key, b"")
