"""Small text files: lines of `key=value`, the last one the CRC-32C of the lines before (docs/formats)."""

from __future__ import annotations

from typing import Final

from kraftbase.checksum import crc32c

_CRC_KEY: Final = b"crc32c="


def encode_properties(lines: str) -> bytes:
    """The content of a file with these lines, each ended by a newline."""
    data = lines.encode("utf-8", "backslashreplace")
    return data + _CRC_KEY + f"{crc32c(data):08x}\n".encode("ascii")


def decode_properties(data: bytes) -> dict[str, str] | None:
    """The values in a file's content by their keys; None if it is damaged."""
    lines, found, crc_text = data.rpartition(_CRC_KEY)
    if not found or crc_text != f"{crc32c(lines):08x}\n".encode("ascii"):
        return None
    return dict(line.split("=", 1) for line in lines.decode("utf-8", "replace").splitlines() if "=" in line)
