"""A small disk that is filled and freed. It needs root."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraftbase.types import NodeId
from kraftlog.chaos.disk import SIZE_MEGABYTES, DiskUnavailable, SmallDisk
from kraftlog.local.cluster_directory import ClusterDirectory, open_or_create

ONE = NodeId(1)


@pytest.fixture
def directory(tmp_path: Path) -> ClusterDirectory:
    return open_or_create(tmp_path / "cluster", voters=1)


@pytest.fixture
def disk(directory: ClusterDirectory) -> Iterator[SmallDisk]:
    disk = SmallDisk(ONE, directory.data_path(ONE))
    try:
        disk.mount()
    except DiskUnavailable as error:
        pytest.skip(f"no small disk here: {error}")
    yield disk
    disk.unmount()


def test_the_data_is_moved_there_and_back(directory: ClusterDirectory, disk: SmallDisk) -> None:
    data = directory.data_path(ONE)
    assert (data / "meta.properties").exists()
    assert data.stat().st_dev != directory.path.stat().st_dev
    (data / "more").write_text("kept")
    disk.unmount()
    assert not data.is_symlink()
    assert (data / "more").read_text() == "kept"
    assert data.stat().st_dev == directory.path.stat().st_dev


def test_a_full_disk_takes_nothing_and_a_freed_one_does(directory: ClusterDirectory, disk: SmallDisk) -> None:
    data = directory.data_path(ONE)
    disk.fill()
    with pytest.raises(OSError) as full:
        (data / "more").write_bytes(b"x" * 4096)
    assert full.value.errno == errno.ENOSPC
    disk.free()
    disk.free()
    (data / "more").write_bytes(b"x" * 4096)


def test_a_full_disk_that_grows_has_room(directory: ClusterDirectory, disk: SmallDisk) -> None:
    data = directory.data_path(ONE)
    assert disk.free_bytes <= SIZE_MEGABYTES << 20
    disk.fill()
    assert disk.free_bytes == 0
    disk.grow(8)
    assert 7 << 20 < disk.free_bytes <= 8 << 20
    (data / "more").write_bytes(b"x" * 4096)


def test_without_root_there_is_none(directory: ClusterDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(DiskUnavailable, match="root"):
        SmallDisk(ONE, directory.data_path(ONE)).mount()
    assert (directory.data_path(ONE) / "meta.properties").exists()
