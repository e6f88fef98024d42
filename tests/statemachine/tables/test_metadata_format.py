"""docs/formats/metadata.md is right: record numbers, tables, digests, and the queries it shows."""

from __future__ import annotations

import hashlib
import re

from kraftpb.v1.batch_pb2 import BatchBody
from kraftpb.v1.metadata_pb2 import MetadataBatch, MetadataRecord
from statemachine.store.metadata_tables import STATE_DIGEST_INTERVAL_OFFSETS
from statemachine.store.store import MetadataStore
from statemachine.tables.database import APPLICATION_ID
from statemachine.words.limits import RECORDS_PER_BATCH_MAX
from tests.paths import ROOT
from tests.statemachine.builders import an_id, batch, broker, config, no_op, partition, remove_topic, topic
from tests.statemachine.conftest import Query

PAGE = (ROOT / "docs" / "formats" / "metadata.md").read_text()

TABLES = PAGE.partition("| Table | Columns")[2]


def test_every_kind_of_record_is_documented_with_kafkas_number() -> None:
    """CT-04: a field's number is one more than the kind's."""
    documented = dict(re.findall(r"^\| `(\w+)` \| (\d+) \|", PAGE, re.MULTILINE))
    fields = MetadataRecord.DESCRIPTOR.oneofs_by_name["record"].fields
    assert {name: int(number) + 1 for name, number in documented.items()} == {f.name: f.number for f in fields}


def test_a_metadata_batch_is_a_batch_body_of_serialised_records() -> None:
    records = [topic("a", 1), partition(1), config("a", "x", None)]
    body = BatchBody(records=[record.SerializeToString() for record in records]).SerializeToString()
    assert MetadataBatch(records=records).SerializeToString() == body


def test_every_column_is_documented(store: MetadataStore, rows: Query) -> None:
    for (table,) in rows("SELECT name FROM sqlite_master WHERE type = 'table'"):
        line = next(line for line in TABLES.splitlines() if line.startswith(f"| `{table}` |"))
        if not table.startswith("_"):
            missing = [name for _, name, *_ in rows(f"PRAGMA table_info({table})") if name not in line]
            assert missing == []


def test_the_queries_shown_run(store: MetadataStore, rows: Query) -> None:
    store.apply([batch(0, [topic("a", 1), partition(1, 0, (1, 2)), broker(1)])])
    short_of_one = partition(1, 1, (1, 2))
    short_of_one.partition.ClearField("isr")
    store.apply([batch(3, [short_of_one])])
    counted, lagging = (query for query in re.search(r"```sql\n(.*?)```", PAGE, re.DOTALL)[1].split(";")[:2])  # type: ignore[index]
    assert rows(counted) == [(1, 2), (2, 2)]
    assert rows(lagging) == [("a", 1)]
    shown = re.search(r"kraftlog sql --directory node-1 '(.*)'", PAGE)
    assert shown is not None
    assert rows(shown[1]) == [("a", 2)]


def test_the_digest_is_what_the_page_says(store: MetadataStore) -> None:
    set_partition, set_broker = partition(1), broker(1, rack="r")
    first = batch(0, [], epoch=2, is_control=True)
    second = batch(1, [topic("a", 1), set_partition, config("a", "x", "1"), config("a", "x", None), no_op()], epoch=3)
    third = batch(6, [set_broker, remove_topic(1)], epoch=3)
    set_topic, set_config = topic("a", 1).topic.SerializeToString(), config("a", "x", "1").config.SerializeToString()
    partition_row = set_partition.partition.SerializeToString()
    config_fields = [b"set", b"configs", set_config, b"remove", b"configs", b"2", b"a", b"x"]
    removal = [b"remove", b"topics", an_id(1), b"remove", b"partitions", an_id(1), b"remove", b"configs", b"2", b"a"]
    removal += [b"remove", b"remote_epoch_ends", an_id(1)]
    fields: list[list[bytes]] = [
        [],
        [b"set", b"topics", set_topic, b"set", b"partitions", partition_row, *config_fields],
        [b"set", b"brokers", set_broker.register_broker.SerializeToString(), *removal],
    ]
    expected = bytes(16)
    for applied, effects in zip((first, second, third), fields, strict=True):
        header = applied.base_offset.to_bytes(8, "big") + applied.epoch.to_bytes(4, "big")
        lengths = b"".join(number.to_bytes(4, "big") for number in (len(effects), *map(len, effects)))
        digested = expected + header + len(applied.body).to_bytes(4, "big") + applied.body + lengths + b"".join(effects)
        expected = hashlib.blake2b(digested, digest_size=16).digest()
    store.apply([first, second, third])
    assert store.applied.digest == expected.hex()
    documented = re.findall(r"^\| [A-Z][^|]* \| `(\w+)`", PAGE, re.MULTILINE)
    assert documented == ["set", "remove"]


def test_the_numbers_on_the_page_are_the_codes(store: MetadataStore, rows: Query) -> None:
    assert f"{RECORDS_PER_BATCH_MAX:,}" in PAGE
    assert f"`{APPLICATION_ID:08x}`" in PAGE
    assert f"multiple of {STATE_DIGEST_INTERVAL_OFFSETS:,}" in PAGE
    assert rows("PRAGMA application_id") == [(APPLICATION_ID,)]
