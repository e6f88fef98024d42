"""Which quota a client is under, and who shares it (DB-93); what the metadata's changes make of that."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from kraftbase.types import Offset
from kraftlog.broker.quotas.client_quotas import LIMIT_MIN, ClientQuotas, Limit, QuotaKind
from kraftlog.network.requests import QuotaClient
from kraftpb.v1.metadata_pb2 import ClientQuotaRecord, QuotaEntity
from statemachine.replay.deltas import Change, MetadataDelta
from statemachine.tables.cluster_tables import CLIENT_QUOTAS
from statemachine.tables.database import open_database
from tests.kraftlog.storage.builders import CLUSTER_ID

DEFAULT = None
"""The name of a type's default."""


def record(value: float, key: str = "producer_byte_rate", **names: str | None) -> ClientQuotaRecord:
    """A quota of an entity: `user`, `client_id` or `ip`."""
    parts = [
        QuotaEntity(entity_type=kind.replace("_", "-"), **({} if name is DEFAULT else {"entity_name": name}))
        for kind, name in names.items()
    ]
    return ClientQuotaRecord(entity=parts, key=key, value=value)


def changed(quotas: ClientQuotas, *records: ClientQuotaRecord) -> None:
    changes = tuple(Change(None, one) for one in records)
    quotas.on_delta(MetadataDelta(end_offset=Offset(1), client_quotas=changes))


def removed(quotas: ClientQuotas, one: ClientQuotaRecord) -> None:
    quotas.on_delta(MetadataDelta(end_offset=Offset(1), client_quotas=(Change(one, None),)))


LEVELS = [
    (record(1, user="ann", client_id="etl"), ("ann", "etl")),
    (record(2, user="ann", client_id=DEFAULT), ("ann", "etl")),
    (record(3, user="ann"), ("ann", "")),
    (record(4, user=DEFAULT, client_id="etl"), ("ann", "etl")),
    (record(5, user=DEFAULT, client_id=DEFAULT), ("ann", "etl")),
    (record(6, user=DEFAULT), ("ann", "")),
    (record(7, client_id="etl"), ("", "etl")),
    (record(8, client_id=DEFAULT), ("", "etl")),
]
"""The one that counts first, and who shares it."""

ANN = QuotaClient("ann", "etl")


def test_db93_the_most_specific_quota_counts() -> None:
    quotas = ClientQuotas()
    changed(quotas, *(one for one, _ in LEVELS))
    for one, shared_by in LEVELS:
        assert quotas.limit(QuotaKind.PRODUCE, ANN) == Limit(QuotaClient(*shared_by), one.value)
        removed(quotas, one)
    assert quotas.limit(QuotaKind.PRODUCE, ANN) is None
    assert not quotas.is_set(QuotaKind.PRODUCE)


@pytest.mark.parametrize(
    ("client", "limit"),
    [
        (QuotaClient("ann", "other"), Limit(QuotaClient("ann", "other"), 2)),
        (QuotaClient("bob", "etl"), Limit(QuotaClient("bob", "etl"), 4)),
        (QuotaClient("bob", "other"), Limit(QuotaClient("bob", "other"), 5)),
        (QuotaClient("ann", ""), Limit(QuotaClient("ann", ""), 3)),
        (QuotaClient("bob", ""), Limit(QuotaClient("bob", ""), 6)),
    ],
)
def test_db93_others_are_under_the_defaults_and_who_has_no_client_id_under_those_of_users(
    client: QuotaClient, limit: Limit
) -> None:
    quotas = ClientQuotas()
    changed(quotas, *(one for one, _ in LEVELS))
    assert quotas.limit(QuotaKind.PRODUCE, client) == limit


def test_db93_quotas_of_client_ids_are_not_for_those_without() -> None:
    quotas = ClientQuotas()
    changed(quotas, record(8, client_id=DEFAULT))
    assert quotas.limit(QuotaKind.PRODUCE, QuotaClient("ann", "")) is None


def test_each_key_has_quotas_of_its_own_and_what_is_not_the_brokers_is_passed_over() -> None:
    quotas = ClientQuotas()
    changed(
        quotas,
        record(10, "consumer_byte_rate", user="ann"),
        record(20, "request_percentage", user="ann"),
        record(30, "controller_mutation_rate", user="ann"),
        record(40, "connection_creation_rate", ip="10.0.0.1"),
        record(50, "consumer_byte_rate", ip=DEFAULT),
    )
    assert [quotas.limit(kind, ANN) for kind in QuotaKind] == [
        None, Limit(QuotaClient("ann", ""), 10), Limit(QuotaClient("ann", ""), 20)
    ]  # fmt: skip
    removed(quotas, record(40, "connection_creation_rate", ip="10.0.0.1"))
    removed(quotas, record(10, "consumer_byte_rate", client_id="never set"))
    changed(quotas, record(0, "consumer_byte_rate", user="ann"))
    assert quotas.limit(QuotaKind.FETCH, ANN) == Limit(QuotaClient("ann", ""), LIMIT_MIN)


def test_a_snapshot_is_all_there_is(tmp_path: Path) -> None:
    quotas = ClientQuotas()
    changed(quotas, record(1, user="gone"))
    with closing(open_database(tmp_path / "metadata.db", CLUSTER_ID).conn) as metadata:
        for one in (record(2, user="ann"), record(3, client_id=DEFAULT)):
            metadata.execute(CLIENT_QUOTAS.insert_sql, CLIENT_QUOTAS.to_row(one))
        quotas.on_snapshot(Offset(1), metadata)
    users = [quotas.limit(QuotaKind.PRODUCE, QuotaClient(user, "etl")) for user in ("gone", "ann")]
    assert users == [Limit(QuotaClient("", "etl"), 3), Limit(QuotaClient("ann", ""), 2)]
