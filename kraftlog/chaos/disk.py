"""A small disk for one node or broker, which a ballast file can fill. It is a tmpfs, which needs root."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Final

from kraftbase.types import NodeId

SIZE_MEGABYTES: Final = 192
CHUNK_BYTES: Final = 1024 * 1024
PAGE_BYTES: Final = 4096
COMMAND_TIMEOUT_SECONDS: Final = 10.0


class DiskUnavailable(Exception):
    """No small disk can be mounted or resized. The message has the reason."""


class SmallDisk:
    """A separate disk for one node's data. The node must not run while it is mounted or unmounted."""

    def __init__(self, node_id: NodeId, data: Path, size_megabytes: int = SIZE_MEGABYTES) -> None:
        """Does not mount it yet. `data` is the node's directory."""
        self.node_id = node_id
        self._size_megabytes = size_megabytes
        self._data = data
        self._mount = data.with_name(f"small-disk-{node_id}")
        self._ballast = self._mount / "ballast"
        self._is_mounted = False

    def mount(self) -> None:
        """Mount the disk and move the data to it. After DiskUnavailable the data is unchanged."""
        if os.geteuid() != 0:
            raise DiskUnavailable("only root may mount a tmpfs")
        self._mount.mkdir()
        try:
            _run("mount", "-t", "tmpfs", "-o", self._size_option(), "tmpfs", str(self._mount))
        except (subprocess.SubprocessError, OSError) as error:
            self._mount.rmdir()
            said = (getattr(error, "stderr", "") or str(error)).splitlines()[0]
            raise DiskUnavailable(f"tmpfs cannot be mounted: {said}") from None
        self._is_mounted = True
        inside = self._mount / "data"
        shutil.move(self._data, inside)
        self._data.symlink_to(inside)

    def fill(self) -> None:
        """Fill the disk, to the last page."""
        with self._ballast.open("ab", buffering=0) as ballast:
            for chunk in (b"\0" * CHUNK_BYTES, b"\0" * PAGE_BYTES):
                try:
                    while ballast.write(chunk) == len(chunk):
                        pass
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    @property
    def free_bytes(self) -> int:
        """The free bytes on the disk."""
        return shutil.disk_usage(self._mount).free

    def grow(self, megabytes: int) -> None:
        """Make the disk larger, as when an operator resizes a volume. Raises DiskUnavailable."""
        self._size_megabytes += megabytes
        try:
            _run("mount", "-o", f"remount,{self._size_option()}", str(self._mount))
        except (subprocess.SubprocessError, OSError) as error:
            raise DiskUnavailable(f"tmpfs cannot be resized: {error}") from None

    def free(self) -> None:
        """Undo `fill`."""
        self._ballast.unlink(missing_ok=True)

    def unmount(self) -> None:
        """Move the data back, so that it can be inspected, and remove the disk."""
        if not self._is_mounted:
            return
        self.free()
        self._data.unlink()
        shutil.copytree(self._mount / "data", self._data)
        with suppress(subprocess.SubprocessError, OSError):
            _run("umount", "--lazy", str(self._mount))
            self._is_mounted = False
            self._mount.rmdir()

    def _size_option(self) -> str:
        return f"size={self._size_megabytes}m"


def mount_disks(
    data: Mapping[NodeId, Path], stack: AsyncExitStack, size_megabytes: int = SIZE_MEGABYTES
) -> list[SmallDisk]:
    """Mount a small disk for each node's directory until `stack` ends. After DiskUnavailable no disk is mounted."""
    disks: list[SmallDisk] = []
    try:
        for node_id, path in data.items():
            disk = SmallDisk(node_id, path, size_megabytes)
            disk.mount()
            disks.append(disk)
    except DiskUnavailable:
        for disk in disks:
            disk.unmount()
        raise
    for disk in disks:
        stack.callback(disk.unmount)
    return disks


def _run(*command: str) -> None:
    subprocess.run(  # noqa: S603 (the command is ours)
        command, check=True, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_SECONDS
    )
