"""The part of a partition that would survive a loss of power now, with nothing unsynced kept."""

from __future__ import annotations

from typing import Final

from kraftbase.files.memory import MemoryFileSystem

_SUFFIX: Final = ".log"
_DIGITS: Final = 20


def is_durable(files: MemoryFileSystem, directory: str, base_offset: int, content: bytes) -> bool:
    """Whether the segment of the offset durably contains a batch's bytes, and its name is durable, too."""
    durable = files.durable_files(directory)
    names = [name for name in durable if name.endswith(_SUFFIX) and len(name) == _DIGITS + len(_SUFFIX)]
    having = [name for name in names if int(name[:_DIGITS]) <= base_offset]
    return bool(having) and content in durable[max(having)].data
