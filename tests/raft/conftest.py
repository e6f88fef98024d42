"""Fixtures of the tests of nodes."""

from __future__ import annotations

from tests.raft.storage.conftest import files, memory_files

__all__ = ["files", "memory_files"]
