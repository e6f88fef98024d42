"""An export that dies, at any point and in any way, leaves nothing doubled and nothing lost."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from kraftbase.errors import DirectoryError, FlushFailed, KraftlogError, OutOfSpace
from kraftbase.types import Offset
from kraftlog.analytics.export import export
from kraftlog.analytics.files import PosixFiles
from kraftlog.analytics.manifest import latest_manifest
from tests.effort import some
from tests.kraftlog.analytics.disks import CutFiles, FullDisk, PowerCut
from tests.kraftlog.analytics.exports import expected_rows, exported_rows, unlisted_files
from tests.kraftlog.analytics.logs import HandMadeLog, MemorySource, small_log
from tests.paths import ROOT

BATCHES_BEFORE = 4


async def points_to_die_at(directory: Path) -> list[int]:
    """The number of every operation of an export; of several writes in a row only the second."""
    files = CutFiles(directory, None)
    await export(MemorySource(small_log()), directory / "counted", files=files, rows_per_file=12)
    operations = files.operations
    assert {"make_directory", "create", "write", "flush", "link", "flush_directory", "remove"} <= set(operations)
    return [
        number
        for number, operation in enumerate(operations)
        if operation != "write" or operations[number - 2 : number] == ["create", "write"]
    ]


@pytest.mark.parametrize("keeps_everything", [True, False], ids=["process dies", "power goes"])
@pytest.mark.parametrize("batches_before", [0, BATCHES_BEFORE], ids=["first export", "later export"])
async def test_whenever_it_dies_the_next_export_has_every_offset_once(tmp_path, keeps_everything, batches_before):
    log = small_log()
    before = expected_rows(log.up_to(batches_before)) if batches_before else []
    for cut_at in some(await points_to_die_at(tmp_path), part=4):
        directory, stash = tmp_path / f"export-{cut_at}", tmp_path / f"stash-{cut_at}"
        stash.mkdir()
        if batches_before:
            await export(MemorySource(log.up_to(batches_before)), directory)
        files = CutFiles(stash, cut_at, keeps_everything=keeps_everything)
        try:
            await export(MemorySource(log), directory, files=files, rows_per_file=12)
        except PowerCut:
            pass
        else:
            assert batches_before, "a first export takes all the operations"
        survived = exported_rows(directory) if latest_manifest(directory) else []
        assert len(survived) >= len(before)
        assert survived == expected_rows(log)[: len(survived)]

        await export(MemorySource(log), directory, rows_per_file=12)
        assert exported_rows(directory) == expected_rows(log)
        assert unlisted_files(directory) == set()


async def test_a_published_manifest_survives_the_power_going_at_once(tmp_path):
    """Each file and manifest is durable before the next thing happens, so at most one file is ever lost."""
    log = small_log()
    published: list[Offset] = []
    for cut_at in await points_to_die_at(tmp_path):
        directory, stash = tmp_path / f"export-{cut_at}", tmp_path / f"stash-{cut_at}"
        stash.mkdir()
        published.clear()
        with pytest.raises(PowerCut):
            await export(
                MemorySource(log),
                directory,
                files=CutFiles(stash, cut_at),
                rows_per_file=12,
                progress=lambda reached, _: published.append(reached),
            )
        manifest = latest_manifest(directory)
        assert (manifest.end_offset if manifest else 0) >= (published[-1] if published else 0)


CHILD = """
import asyncio, sys
from pathlib import Path
from kraftlog.analytics.export import export
from tests.kraftlog.analytics.logs import MemorySource, small_log

class Stuck(MemorySource):
    async def batches(self, start_offset, end_offset):
        async for batch in super().batches(start_offset, end_offset):
            if batch.epoch == 3:
                print("stuck", flush=True)
                await asyncio.Event().wait()
            yield batch

asyncio.run(export(Stuck(small_log()), Path(sys.argv[1]), rows_per_file=3))
"""


async def test_an_export_that_is_killed_is_finished_by_the_next(tmp_path):
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", CHILD, str(tmp_path)),
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert await child.stdout.readline() == b"stuck\n"
    with pytest.raises(DirectoryError, match="another export writes to"):
        await export(MemorySource(small_log()), tmp_path)
    os.kill(child.pid, signal.SIGKILL)
    await child.communicate()
    assert unlisted_files(tmp_path) != set()
    first = latest_manifest(tmp_path).end_offset

    summary = await export(MemorySource(small_log()), tmp_path)
    assert 0 < first == summary.start_offset
    assert exported_rows(tmp_path) == expected_rows(small_log())
    assert unlisted_files(tmp_path) == set()


class PausingSource(MemorySource):
    """Lets a test do something when half of the log is exported."""

    def __init__(self, log: HandMadeLog) -> None:
        super().__init__(log)
        self.is_half = asyncio.Event()
        self.go_on = asyncio.Event()

    async def batches(self, start_offset, end_offset):
        async for batch in super().batches(start_offset, end_offset):
            if batch.epoch == 2:
                self.is_half.set()
                await self.go_on.wait()
            yield batch


async def test_of_two_exports_at_a_time_the_second_is_refused(tmp_path):
    source = PausingSource(small_log())
    first = asyncio.create_task(export(source, tmp_path))
    await source.is_half.wait()
    with pytest.raises(DirectoryError, match="another export writes to"):
        await export(MemorySource(small_log()), tmp_path)
    source.go_on.set()
    await first
    assert exported_rows(tmp_path) == expected_rows(small_log())


class NoLocks(PosixFiles):
    """A file system whose locks do nothing, such as some network file systems."""

    def try_lock(self, path):
        return super().try_lock(path.with_name(f"_lock-{id(self)}"))

    def link(self, path, name):
        linked = super().link(path, name)
        for lock in path.parents[1].glob("_lock-*"):
            lock.unlink()
        return linked


@pytest.mark.parametrize("rows_per_file", [3, 1000])
async def test_even_without_locks_nothing_is_doubled(tmp_path, rows_per_file):
    source = PausingSource(small_log())
    first = asyncio.create_task(export(source, tmp_path, files=NoLocks(), rows_per_file=rows_per_file))
    await source.is_half.wait()
    for lock in tmp_path.glob("_lock-*"):
        lock.unlink()
    await export(MemorySource(small_log()), tmp_path, files=NoLocks(), rows_per_file=rows_per_file)
    source.go_on.set()
    with pytest.raises(KraftlogError):
        await first
    assert exported_rows(tmp_path) == expected_rows(small_log())


async def test_a_cancelled_export_leaves_a_directory_that_can_be_continued_at_once(tmp_path):
    source = PausingSource(small_log())
    task = asyncio.create_task(export(source, tmp_path))
    await source.is_half.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert list(tmp_path.rglob("_tmp-*")) == []
    await export(MemorySource(small_log()), tmp_path)
    assert exported_rows(tmp_path) == expected_rows(small_log())


@pytest.mark.parametrize("bytes_max", [0, 100, 3000])
async def test_a_full_disk_is_said_so_and_the_export_continues_when_there_is_room(tmp_path, bytes_max):
    with pytest.raises(OutOfSpace, match=r"No space left on device; make room and run it again"):
        await export(MemorySource(small_log()), tmp_path, files=FullDisk(bytes_max))
    assert latest_manifest(tmp_path) is None
    assert list(tmp_path.rglob("_tmp-*")) == []
    await export(MemorySource(small_log()), tmp_path)
    assert exported_rows(tmp_path) == expected_rows(small_log())


async def test_a_failed_fsync_publishes_nothing(tmp_path):
    class FailingFlush(PosixFiles):
        def flush(self, file):
            raise FlushFailed("fsync failed")

    with pytest.raises(FlushFailed):
        await export(MemorySource(small_log()), tmp_path, files=FailingFlush())
    assert latest_manifest(tmp_path) is None
