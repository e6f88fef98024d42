"""Committed records as JSON objects in Kafka's words: what `kraftlog watch` prints.

The fields are those of the export's payload column. Bytes that are not a metadata record of this version are shown as
they are, so that a reader misses nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from google.protobuf.message import DecodeError, Message

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.analytics.payload import bytes_to_text, to_json
from kraftlog.analytics.rows import record_type
from kraftlog.analytics.schema import UNKNOWN_RECORD_TYPE
from kraftpb.v1 import batch_pb2, metadata_pb2
from raft.core.types import Batch
from raft.storage.batch import batch_body, batch_timestamp, records


def committed_records(batch: Batch) -> Iterator[dict[str, Any]]:
    """One object per record of a committed batch: offset, epoch, timestamp, type, data.

    Raises ApiError(CORRUPT_MESSAGE) when the body is not what the header says.
    """
    timestamp_ms = batch_timestamp(batch)
    for offset, (name, data) in enumerate(_named_records(batch), batch.base_offset):
        yield {"offset": offset, "epoch": batch.epoch, "timestamp": timestamp_ms, "type": name, "data": data}


def _named_records(batch: Batch) -> Iterable[tuple[str, dict[str, Any]]]:
    if batch.is_control:
        try:
            return map(_name, batch_pb2.ControlBody.FromString(batch_body(batch)).records)
        except DecodeError as error:
            raise ApiError(
                ErrorCode.CORRUPT_MESSAGE,
                f"the body of the control batch at offset {batch.base_offset} is not a ControlBody: {error}",
            ) from None
    return map(_metadata_record, records(batch))


def _metadata_record(encoded: bytes) -> tuple[str, dict[str, Any]]:
    try:
        record = metadata_pb2.MetadataRecord.FromString(encoded)
    except DecodeError:
        record = None
    if record is None or record.WhichOneof("record") is None:
        return UNKNOWN_RECORD_TYPE, {"bytes": bytes_to_text(encoded)}
    return _name(record)


def _name(wrapper: Message) -> tuple[str, dict[str, Any]]:
    kind = wrapper.WhichOneof("record")
    if kind is None:
        return UNKNOWN_RECORD_TYPE, {"bytes": bytes_to_text(wrapper.SerializeToString())}
    record = getattr(wrapper, kind)
    return record_type(kind, record), json.loads(to_json(record))
