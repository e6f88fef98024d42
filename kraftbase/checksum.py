"""CRC-32C, the one checksum of every file and batch.

It finds every flip of up to three bits and every damaged stretch of up to 32 bits in anything that is stored here,
and misses other damage once in 2^32 times. It guards against accidents, not against forged bytes.
"""

from __future__ import annotations

from collections.abc import Callable

import google_crc32c

crc32c: Callable[[bytes], int] = google_crc32c.value
"""The CRC-32C of some bytes. Takes `bytes` only, no memoryview."""

extend_crc32c: Callable[[int, bytes], int] = google_crc32c.extend
"""The CRC-32C of the bytes with the CRC in the first argument, followed by those in the second one."""
