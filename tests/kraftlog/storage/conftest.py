"""The file systems of the tests of storage."""

from __future__ import annotations

from tests.raft.storage.conftest import files, memory_files

__all__ = ["files", "memory_files"]
