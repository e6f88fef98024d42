"""Fixtures of the tests of snapshots."""

from __future__ import annotations

import pytest

from kraftbase.files.memory import MemoryFileSystem
from tests.raft.storage.conftest import files, memory_files
from tests.snapshot.builders import open_store

__all__ = ["disk", "files", "memory_files"]


@pytest.fixture(scope="module")
def disk() -> MemoryFileSystem:
    """A file system with an empty store, for tests that store one file after the other."""
    files = MemoryFileSystem()
    open_store(files)
    return files
