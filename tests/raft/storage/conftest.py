"""Fixtures of the tests of storage."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraftbase.files.files import FileSystem
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.files.posix import PosixFileSystem


@pytest.fixture(params=["memory", "posix"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FileSystem]:
    """Every file system, in an empty working directory: relative paths name the same things in both."""
    if request.param == "memory":
        yield MemoryFileSystem()
        return
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        yield PosixFileSystem()
    finally:
        os.chdir(before)


@pytest.fixture
def memory_files() -> MemoryFileSystem:
    """A file system that can crash."""
    return MemoryFileSystem()
