"""Batches to rows: one row per record, built column by column.

A row without a value in a column costs nothing there: the column is filled up with nulls when its next value is added,
and at the end. Bytes that are not a metadata record of this version are no error, since a user's own log has only such
records: they become a row of type UNKNOWN with the bytes as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.types import Offset
from kraftlog.analytics.payload import bytes_to_text, to_json
from kraftlog.analytics.schema import COLUMN_NAMES, UNKNOWN_RECORD_TYPE, arrow_schema
from kraftpb.v1 import batch_pb2, metadata_pb2
from raft.core.types import Batch
from raft.storage.batch import batch_body, batch_timestamp, records

if TYPE_CHECKING:
    import pyarrow

MICROSECONDS_PER_MILLISECOND: Final = 1000

CONFIG_RESOURCE_TYPES: Final = {2: "TOPIC", 4: "BROKER"}
"""Kafka's names of the resource types that have configs here. Any other type is shown by its number."""


def rows_of(batches: Sequence[Batch], start_offset: Offset, end_offset: Offset) -> pyarrow.RecordBatch:
    """The rows of the records from `start_offset` to `end_offset` (exclusive) in `batches`.

    Raises ApiError(CORRUPT_MESSAGE) for a batch whose body does not hold what its header says.
    """
    import pyarrow as pa

    rows = _Rows()
    for batch in batches:
        rows.add(batch, start_offset, end_offset)
    schema = arrow_schema()
    columns = rows.columns()
    return pa.RecordBatch.from_arrays([pa.array(columns[field.name], field.type) for field in schema], schema=schema)


class _Rows:
    def __init__(self) -> None:
        self._columns: dict[str, list[Any]] = {name: [] for name in COLUMN_NAMES}
        self._count = 0

    def add(self, batch: Batch, start_offset: Offset, end_offset: Offset) -> None:
        """Add a row for each record of the batch that lies in the range."""
        first = max(start_offset - batch.base_offset, 0)
        last = min(end_offset, batch.end_offset) - batch.base_offset
        count = last - first
        if count <= 0:
            return
        columns = self._columns
        columns["offset"].extend(range(batch.base_offset + first, batch.base_offset + last))
        columns["epoch"].extend(repeat(batch.epoch, count))
        columns["timestamp"].extend(repeat(batch_timestamp(batch) * MICROSECONDS_PER_MILLISECOND, count))
        columns["base_offset"].extend(repeat(batch.base_offset, count))
        columns["is_control"].extend(repeat(batch.is_control, count))
        for wrapper, encoded in (_control_records(batch) if batch.is_control else _data_records(batch))[first:last]:
            self._add_record(wrapper, encoded)
            self._count += 1

    def _add_record(self, wrapper: Message | None, encoded: bytes) -> None:
        kind = None if wrapper is None else wrapper.WhichOneof("record")
        if wrapper is None or kind is None:
            self._columns["record_type"].append(UNKNOWN_RECORD_TYPE)
            self._put("value", encoded)
            return
        record: Message = getattr(wrapper, kind)
        self._columns["record_type"].append(record_type(kind, record))
        self._put("payload", to_json(record))
        for column, field, is_optional, convert in COLUMNS_OF_KIND.get(kind, ()):
            if not is_optional or record.HasField(field):
                self._put(column, convert(getattr(record, field)))

    def _put(self, column: str, value: object) -> None:
        values = self._columns[column]
        values.extend(repeat(None, self._count - len(values)))
        values.append(value)

    def columns(self) -> dict[str, list[Any]]:
        """Every column, filled up to the same length."""
        for values in self._columns.values():
            values.extend(repeat(None, self._count - len(values)))
        return self._columns


def record_type(kind: str, record: Message) -> str:
    """The type of a record by Kafka's name: TopicRecord is TOPIC_RECORD. `kind` is its field in `MetadataRecord`."""
    if isinstance(record, metadata_pb2.OpaqueRecord):  # of several of Kafka's types
        return f"{kind.upper()}_RECORD"
    return _upper_snake(record.DESCRIPTOR.name)


@cache
def _upper_snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()


def _data_records(batch: Batch) -> list[tuple[Message | None, bytes]]:
    return [(_metadata_record(encoded), encoded) for encoded in records(batch)]


def _metadata_record(encoded: bytes) -> Message | None:
    try:
        return metadata_pb2.MetadataRecord.FromString(encoded)
    except DecodeError:
        return None


def _control_records(batch: Batch) -> list[tuple[Message | None, bytes]]:
    try:
        found: Iterable[Message] = batch_pb2.ControlBody.FromString(batch_body(batch)).records
    except DecodeError as error:
        raise _corrupt(batch, f"is not a ControlBody: {error}") from None
    pairs: list[tuple[Message | None, bytes]] = [(record, record.SerializeToString()) for record in found]
    if len(pairs) != batch.record_count:
        raise _corrupt(batch, f"holds {len(pairs)} records, its header says {batch.record_count}")
    return pairs


def _corrupt(batch: Batch, reason: str) -> ApiError:
    return ApiError(ErrorCode.CORRUPT_MESSAGE, f"the body of the control batch at offset {batch.base_offset} {reason}")


def _resource_type(number: int) -> str:
    return CONFIG_RESOURCE_TYPES.get(number, str(number))


def _same(value: object) -> object:
    return value


def _ids(value: metadata_pb2.BrokerIds) -> list[int]:
    return list(value.ids)


def _column(
    message: type[Message], column: str, field: str, convert: Callable[[Any], Any] | None = None
) -> tuple[str, str, bool, Callable[[Any], Any]]:
    descriptor = message.DESCRIPTOR.fields_by_name[field]
    if convert is None:
        convert = bytes_to_text if descriptor.type == FieldDescriptor.TYPE_BYTES else _same
        convert = list if descriptor.is_repeated else convert
    return column, field, descriptor.has_presence, convert


_BROKER = metadata_pb2.RegisterBrokerRecord
_TOPIC = metadata_pb2.TopicRecord
_PARTITION = metadata_pb2.PartitionRecord
_PARTITION_CHANGE = metadata_pb2.PartitionChangeRecord
_BROKER_CHANGE = metadata_pb2.BrokerRegistrationChangeRecord
_CONFIG = metadata_pb2.ConfigRecord
_SEGMENT = metadata_pb2.RemoteLogSegmentMetadataRecord
_SEGMENT_UPDATE = metadata_pb2.RemoteLogSegmentMetadataUpdateRecord
_REMOTE_DELETE = metadata_pb2.RemotePartitionDeleteMetadataRecord

COLUMNS_OF_KIND: Final = {
    "register_broker": (
        _column(_BROKER, "broker_id", "broker_id"),
        _column(_BROKER, "broker_epoch", "broker_epoch"),
        _column(_BROKER, "fenced", "fenced"),
        _column(_BROKER, "rack", "rack"),
    ),
    "topic": (
        _column(_TOPIC, "topic", "name"),
        _column(_TOPIC, "topic_id", "topic_id"),
    ),
    "partition": (
        _column(_PARTITION, "topic_id", "topic_id"),
        _column(_PARTITION, "partition", "partition_id"),
        _column(_PARTITION, "leader", "leader"),
        _column(_PARTITION, "leader_epoch", "leader_epoch"),
        _column(_PARTITION, "partition_epoch", "partition_epoch"),
        _column(_PARTITION, "replicas", "replicas"),
        _column(_PARTITION, "isr", "isr"),
    ),
    "partition_change": (
        _column(_PARTITION_CHANGE, "topic_id", "topic_id"),
        _column(_PARTITION_CHANGE, "partition", "partition_id"),
        _column(_PARTITION_CHANGE, "leader", "leader"),
        _column(_PARTITION_CHANGE, "replicas", "replicas", _ids),
        _column(_PARTITION_CHANGE, "isr", "isr", _ids),
    ),
    "unregister_broker": (
        _column(metadata_pb2.UnregisterBrokerRecord, "broker_id", "broker_id"),
        _column(metadata_pb2.UnregisterBrokerRecord, "broker_epoch", "broker_epoch"),
    ),
    "broker_registration_change": (
        _column(_BROKER_CHANGE, "broker_id", "broker_id"),
        _column(_BROKER_CHANGE, "broker_epoch", "broker_epoch"),
        _column(_BROKER_CHANGE, "fenced", "fenced"),
    ),
    "remote_log_segment_metadata": (
        _column(_SEGMENT, "topic_id", "topic_id"),
        _column(_SEGMENT, "partition", "partition_id"),
        _column(_SEGMENT, "broker_id", "broker_id"),
    ),
    "remote_log_segment_metadata_update": (
        _column(_SEGMENT_UPDATE, "topic_id", "topic_id"),
        _column(_SEGMENT_UPDATE, "partition", "partition_id"),
        _column(_SEGMENT_UPDATE, "broker_id", "broker_id"),
    ),
    "remote_partition_delete_metadata": (
        _column(_REMOTE_DELETE, "topic_id", "topic_id"),
        _column(_REMOTE_DELETE, "partition", "partition_id"),
        _column(_REMOTE_DELETE, "broker_id", "broker_id"),
    ),
    "config": (
        _column(_CONFIG, "resource_type", "resource_type", _resource_type),
        _column(_CONFIG, "resource_name", "resource_name"),
        _column(_CONFIG, "config_name", "name"),
        _column(_CONFIG, "config_value", "value"),
    ),
    "remove_topic": (_column(metadata_pb2.RemoveTopicRecord, "topic_id", "topic_id"),),
    "leader_change": (_column(batch_pb2.LeaderChange, "leader", "leader_id"),),
}
"""For each kind of record: column, field, whether the field may be unset, and how its value becomes the column's."""
