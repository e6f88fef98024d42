"""The columns of the exported log: one definition for Parquet, Arrow and Spark.

A row depends only on its record and its batch: the same offset gives the same row in every export.
Names and types never change; a new column is nullable, comes last, and makes a new SCHEMA_VERSION. Older files lack it
and readers see nulls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow

SCHEMA_VERSION: Final = 1
"""It grows by one with every new column. The manifest has the version of each file."""

UNKNOWN_RECORD_TYPE: Final = "UNKNOWN"
"""The record_type of bytes that are no metadata record of this version, such as those of a user's own log."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, its type in Spark's SQL, and what it holds."""

    name: str
    spark_type: str
    meaning: str


COLUMNS: Final = (
    Column("offset", "BIGINT", "offset of the record; without gaps, each once"),
    Column("epoch", "INT", "epoch of the quorum's leader that wrote the record"),
    Column("timestamp", "TIMESTAMP", "when that leader appended the batch, by its clock"),
    Column(
        "base_offset", "BIGINT", "offset of the first record of the batch; records of a batch were committed together"
    ),
    Column("is_control", "BOOLEAN", "true for the quorum's own records"),
    Column("record_type", "STRING", "Kafka's name of the record's type; LEADER_CHANGE for a control record"),
    Column("topic_id", "STRING", "id of the topic, 22 characters as Kafka prints it"),
    Column("topic", "STRING", "name of the topic, in TOPIC_RECORD only: a topic's other records carry its id"),
    Column("partition", "INT", "partition number"),
    Column(
        "leader",
        "INT",
        "broker that leads the partition (-1: none; null in a change: as before); in LEADER_CHANGE the node that leads"
        " the quorum",
    ),
    Column("leader_epoch", "INT", "leader epoch of the partition"),
    Column("partition_epoch", "INT", "epoch of the partition's registration, one more with each change"),
    Column("replicas", "ARRAY<INT>", "brokers that hold the partition, the preferred leader first"),
    Column("isr", "ARRAY<INT>", "in-sync replicas of the partition"),
    Column("broker_id", "INT", "broker that registers, changes or goes; in tiering records the one that reports"),
    Column("broker_epoch", "BIGINT", "epoch of the broker's registration"),
    Column("fenced", "BOOLEAN", "whether the broker is fenced"),
    Column("rack", "STRING", "rack of the broker"),
    Column("resource_type", "STRING", "what a config belongs to: TOPIC or BROKER"),
    Column("resource_name", "STRING", "topic name or broker id of a config; empty for the cluster's default"),
    Column("config_name", "STRING", "name of a config"),
    Column("config_value", "STRING", "value of a config; null when it is removed"),
    Column("payload", "STRING", "the whole record as JSON with Kafka's field names; null for UNKNOWN"),
    Column("value", "BINARY", "the record's bytes, for UNKNOWN only"),
)

COLUMN_NAMES: Final = tuple(column.name for column in COLUMNS)


def spark_ddl(names: tuple[str, ...] = COLUMN_NAMES) -> str:
    """The columns, or those of `names`, as Spark's SQL declares them."""
    return ", ".join(f"{column.name} {column.spark_type}" for column in COLUMNS if column.name in names)


def arrow_schema() -> pyarrow.Schema:
    """Return the columns as an Arrow schema, equal to the one that Spark makes of `spark_ddl` in a UTC session."""
    import pyarrow as pa

    arrow_types = {
        "BIGINT": pa.int64(),
        "INT": pa.int32(),
        "BOOLEAN": pa.bool_(),
        "STRING": pa.string(),
        "BINARY": pa.binary(),
        "TIMESTAMP": pa.timestamp("us", tz="UTC"),
        "ARRAY<INT>": pa.list_(pa.field("element", pa.int32())),
    }
    return pa.schema([pa.field(column.name, arrow_types[column.spark_type]) for column in COLUMNS])
