"""Batches that a Produce may not send, beside those that the log refuses. Only their attributes are read."""

from __future__ import annotations

import struct
from typing import Final

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.kafka.notation import Buffer
from kraftlog.kafka.record_batch import HEADER_BYTES, MAGIC, Compression

FIRST_VERSION_WITH_ZSTD: Final = 7

_MAGIC_AT: Final = 16
_ATTRIBUTES: Final = struct.Struct(">h")
_ATTRIBUTES_AT: Final = 21
_COMPRESSION: Final = 0x07
_TRANSACTIONAL: Final = 0x10


def check_attributes(records: Buffer, version: int, transactional_id: str | None) -> None:
    """Refuse a batch that this version of Produce, or a cluster without transactions, cannot accept. Raises ApiError.

    UNSUPPORTED_COMPRESSION_TYPE: zstd in a version whose readers do not know it (KIP-110). INVALID_TXN_STATE: records
    of a transaction that no coordinator has begun (KIP-890). It would never end, so readers of committed records would
    wait for ever. TRANSACTIONAL_ID_AUTHORIZATION_FAILED: such records without a transactional id.
    """
    if len(records) < HEADER_BYTES or records[_MAGIC_AT] != MAGIC:
        return  # the log refuses it with the right error
    (attributes,) = _ATTRIBUTES.unpack_from(records, _ATTRIBUTES_AT)
    if version < FIRST_VERSION_WITH_ZSTD and attributes & _COMPRESSION == Compression.ZSTD:
        raise ApiError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"the batch is compressed with zstd, which version {version} of Produce does not support; use a newer"
            " client or another compression",
        )
    if attributes & _TRANSACTIONAL:
        if transactional_id is None:
            raise ApiError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "the batch is part of a transaction, but the request has no transactional id",
            )
        raise ApiError(
            ErrorCode.INVALID_TXN_STATE,
            f"the batch is part of a transaction of {transactional_id!r}, but this cluster has no transaction"
            " coordinator yet; produce without a transactional id",
        )
