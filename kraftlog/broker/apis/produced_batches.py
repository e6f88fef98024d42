"""What a Produce may not send, beside what the log refuses: known from the batch's attributes, which are read only."""

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
    """Refuse what has no place in this version of Produce, or in a cluster without transactions. Raises ApiError.

    UNSUPPORTED_COMPRESSION_TYPE: zstd in a version whose readers do not know it (KIP-110). INVALID_TXN_STATE: records
    of a transaction, of which no coordinator knows (KIP-890): nobody would end it, and readers of committed records
    would wait for ever. TRANSACTIONAL_ID_AUTHORIZATION_FAILED: the same without a transactional id.
    """
    if len(records) < HEADER_BYTES or records[_MAGIC_AT] != MAGIC:
        return  # the log says what is wrong
    (attributes,) = _ATTRIBUTES.unpack_from(records, _ATTRIBUTES_AT)
    if version < FIRST_VERSION_WITH_ZSTD and attributes & _COMPRESSION == Compression.ZSTD:
        raise ApiError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"the batch is compressed with zstd, which version {version} of Produce does not have: use a newer client,"
            " or another compression",
        )
    if attributes & _TRANSACTIONAL:
        if transactional_id is None:
            raise ApiError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "the batch is of a transaction, and the request has no transactional id",
            )
        raise ApiError(
            ErrorCode.INVALID_TXN_STATE,
            f"the batch is of a transaction of {transactional_id!r}, and this cluster has no coordinator of"
            " transactions yet: produce without a transactional id",
        )
