"""Fields that this program does not know: no node keeps them, so that nothing can depend on them.

Rows cannot hold them. A digest that took them from a batch, or from a row that is still in memory, would depend
on how the log was cut into transactions (KAFKA-14275).
"""

from __future__ import annotations

from pathlib import Path

from kraftpb.v1.admin_pb2 import Operation
from kraftpb.v1.metadata_pb2 import BrokerEndpoint, BrokerRegistrationChangeRecord, MetadataRecord
from statemachine.store.store import MetadataStore
from tests.kraftlog.controller.lives import appended_records
from tests.statemachine.builders import CLUSTER_ID, broker, log_of, register
from tests.statemachine.conftest import Bench

UNKNOWN = b"\xa2\x06\x07unknown"
"""A field of the number 100."""


def endpoint() -> BrokerEndpoint:
    """A message of a client of a later version."""
    known = BrokerEndpoint(name="PLAINTEXT", host="localhost", port=9092)
    return BrokerEndpoint.FromString(known.SerializeToString() + UNKNOWN)


def test_kafka_14275_unknown_fields_are_in_no_digest_however_batches_are_grouped(tmp_path: Path) -> None:
    registered = broker(1)
    del registered.register_broker.end_points[:]
    registered.register_broker.end_points.append(endpoint())
    change = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=0, fenced=True)
    log = log_of([[registered], [MetadataRecord(broker_registration_change=change)]])
    together, apart = (MetadataStore.open(tmp_path / name, CLUSTER_ID) for name in ("together", "apart"))
    together.apply(log)
    for batch in log:
        apart.apply([batch])
    assert together.applied == apart.applied
    for store in (together, apart):
        store.close()


async def test_a_client_of_a_later_version_writes_what_this_one_knows(bench: Bench) -> None:
    operation = register(1)
    del operation.register_broker.listeners[:]
    operation.register_broker.listeners.append(endpoint())
    operation = Operation.FromString(operation.SerializeToString())
    assert UNKNOWN in operation.SerializeToString()
    since = bench.log.next_append_offset
    await bench.done(operation)
    (record,) = appended_records(bench, since=since)
    assert record.register_broker.end_points[0].host == "localhost"
    assert UNKNOWN not in record.SerializeToString()
