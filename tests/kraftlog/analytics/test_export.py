"""The export: every committed offset once, in files that do not change, continued where it ended."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from kraftbase.errors import ApiError, CorruptLog, DirectoryError, ErrorCode
from kraftbase.types import Offset
from kraftlog.analytics.export import export, export_from
from kraftlog.analytics.manifest import read_manifest, verify
from kraftlog.analytics.schema import arrow_schema
from tests.kraftlog.analytics.exports import expected_rows, exported_rows, unlisted_files
from tests.kraftlog.analytics.logs import CLUSTER_ID, HandMadeLog, LogServicer, MemorySource, no_op, serving, small_log


async def test_what_is_exported_is_the_committed_log(tmp_path):
    log = small_log()
    summary = await export(MemorySource(log), tmp_path / "new" / "export")
    assert exported_rows(tmp_path / "new" / "export") == expected_rows(log)
    assert (summary.start_offset, summary.end_offset, summary.rows) == (0, log.end_offset, log.end_offset)
    assert (summary.files, summary.manifest_version) == (3, 3)
    assert unlisted_files(tmp_path / "new" / "export") == set()


async def test_a_cluster_is_exported_over_grpc(tmp_path):
    log = small_log()
    async with serving(LogServicer(log, batches_per_response=3, responses_before_it_breaks=2)) as endpoint:
        summary = await export_from(f"{endpoint.host}:{endpoint.port}", tmp_path)
    assert exported_rows(tmp_path) == expected_rows(log)
    assert summary.rows == log.end_offset


async def test_a_file_never_mixes_epochs(tmp_path):
    log = small_log()
    await export(MemorySource(log), tmp_path)
    files = verify(tmp_path).files
    assert [file.epoch for file in files] == [1, 2, 3]
    for file in files:
        assert {row["epoch"] for row in pq.read_table(tmp_path / file.name).to_pylist()} == {file.epoch}


async def test_a_file_is_closed_at_the_first_batch_boundary_at_or_after_its_size(tmp_path):
    log = HandMadeLog(epoch=1)
    for count in (1, 3, 2, 2, 1):
        log.append(*[no_op()] * count)
    await export(MemorySource(log), tmp_path, rows_per_file=2)
    assert [file.rows for file in verify(tmp_path).files] == [4, 2, 2, 1]


async def test_row_groups_are_written_as_they_fill_up(tmp_path, monkeypatch):
    monkeypatch.setattr("kraftlog.analytics.export.ROW_GROUP_ROWS", 4)
    log = HandMadeLog(epoch=1)
    for _ in range(5):
        log.append(*[no_op()] * 3)
    await export(MemorySource(log), tmp_path)
    (file,) = verify(tmp_path).files
    metadata = pq.ParquetFile(tmp_path / file.name).metadata
    assert [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)] == [6, 6, 3]
    assert exported_rows(tmp_path) == expected_rows(log)


async def test_the_manifest_says_what_the_files_hold(tmp_path):
    log = small_log()
    await export(MemorySource(log), tmp_path)
    manifest = verify(tmp_path)
    assert (manifest.cluster_id, manifest.start_offset, manifest.end_offset) == (CLUSTER_ID, 0, log.end_offset)
    assert (manifest.log_start_offset, manifest.high_watermark) == (0, log.end_offset)
    for file in manifest.files:
        rows = pq.read_table(tmp_path / file.name).to_pylist()
        times_ms = [row["timestamp"].timestamp() * 1000 for row in rows]
        assert [row["offset"] for row in rows] == list(range(file.start_offset, file.end_offset))
        assert (file.min_timestamp_ms, file.max_timestamp_ms) == (min(times_ms), max(times_ms))


async def test_files_have_the_documented_schema(tmp_path):
    await export(MemorySource(small_log()), tmp_path)
    for file in verify(tmp_path).files:
        assert pq.read_schema(tmp_path / file.name).equals(arrow_schema())


async def test_an_export_continues_where_the_last_one_ended(tmp_path):
    log = small_log()
    first = await export(MemorySource(log.up_to(6)), tmp_path)
    kept = {file.name: (tmp_path / file.name).read_bytes() for file in read_manifest(tmp_path).files}
    second = await export(MemorySource(log), tmp_path)
    assert second.start_offset == first.end_offset
    assert first.rows + second.rows == log.end_offset
    assert exported_rows(tmp_path) == expected_rows(log)
    assert {name: (tmp_path / name).read_bytes() for name in kept} == kept


async def test_an_export_with_nothing_new_changes_nothing(tmp_path):
    log = small_log()
    first = await export(MemorySource(log), tmp_path)
    before = sorted(path for path in tmp_path.rglob("*"))
    again = await export(MemorySource(log), tmp_path)
    assert (again.start_offset, again.end_offset, again.rows, again.files) == (log.end_offset, log.end_offset, 0, 0)
    assert again.manifest_version == first.manifest_version
    assert sorted(path for path in tmp_path.rglob("*")) == before


async def test_an_export_from_a_node_that_hears_no_leader_is_kept_and_says_that_there_may_be_more(tmp_path):
    source = MemorySource(small_log())
    source.is_level = False
    with pytest.raises(ApiError, match=r"everything below offset .* is exported, and more may be") as refused:
        await export(source, tmp_path)
    assert refused.value.code is ErrorCode.LEADER_NOT_AVAILABLE
    assert len(exported_rows(tmp_path)) == source.log.end_offset


async def test_a_node_that_is_behind_the_export_adds_nothing(tmp_path):
    log = small_log()
    await export(MemorySource(log), tmp_path)
    assert (await export(MemorySource(log.up_to(5)), tmp_path)).rows == 0
    assert exported_rows(tmp_path) == expected_rows(log)


async def test_an_empty_log_gives_an_empty_export(tmp_path):
    summary = await export(MemorySource(HandMadeLog()), tmp_path)
    assert (summary.rows, summary.files, summary.manifest_version) == (0, 0, 1)
    assert verify(tmp_path).rows == 0
    await export(MemorySource(small_log()), tmp_path)
    assert exported_rows(tmp_path) == expected_rows(small_log())


async def test_an_export_begins_where_the_log_starts_within_a_batch_too(tmp_path):
    log = small_log().from_offset(5)
    await export(MemorySource(log), tmp_path)
    assert [row["offset"] for row in exported_rows(tmp_path)] == list(range(5, log.end_offset))
    assert exported_rows(tmp_path) == expected_rows(log)


async def test_progress_is_told_after_each_file(tmp_path):
    told: list[tuple[int, int]] = []
    log = small_log()
    await export(MemorySource(log), tmp_path, progress=lambda *offsets: told.append(offsets))
    assert told == [(file.end_offset, log.end_offset) for file in verify(tmp_path).files]


async def test_another_clusters_log_is_refused(tmp_path):
    log = small_log()
    await export(MemorySource(log.up_to(3)), tmp_path)
    log.cluster_id = "another"
    with pytest.raises(ApiError, match=f"export of cluster {CLUSTER_ID}, this is cluster another") as refused:
        await export(MemorySource(log), tmp_path)
    assert refused.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert exported_rows(tmp_path) == expected_rows(log.up_to(3))


async def test_an_offset_that_is_gone_is_refused(tmp_path):
    log = small_log()
    await export(MemorySource(log.up_to(2)), tmp_path)
    with pytest.raises(ApiError, match=r"ends at offset 4, the log now starts at 8.*empty directory") as refused:
        await export(MemorySource(log.from_offset(8)), tmp_path)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert exported_rows(tmp_path) == expected_rows(log.up_to(2))


async def test_a_log_that_was_made_anew_under_the_same_id_is_refused(tmp_path):
    await export(MemorySource(small_log()), tmp_path)
    anew = HandMadeLog()
    anew.elect(1)
    anew.append(*[no_op()] * 40)
    with pytest.raises(ApiError, match="this is not the log that the export started with"):
        await export(MemorySource(anew), tmp_path)
    assert exported_rows(tmp_path) == expected_rows(small_log())


async def test_a_gap_in_the_log_is_refused(tmp_path):
    log = small_log()
    del log.batches[3]
    with pytest.raises(ApiError, match="CORRUPT_MESSAGE: expected offset 6, received a batch from 8"):
        await export(MemorySource(log), tmp_path)
    assert not (tmp_path / "_manifest" / f"{1:020}.json").exists()
    assert list((tmp_path / "log").iterdir()) == []


async def test_a_log_that_ends_early_is_refused_and_what_came_is_kept(tmp_path):
    log = small_log()

    class EndsEarly(MemorySource):
        def batches(self, start_offset, end_offset):
            return MemorySource(log.up_to(7)).batches(start_offset, end_offset)

    with pytest.raises(ApiError, match="export again"):
        await export(EndsEarly(log), tmp_path)
    assert exported_rows(tmp_path) == expected_rows(log.up_to(7))


async def test_a_node_that_knows_no_high_watermark_yet_is_refused(tmp_path):
    class WithoutLeader(MemorySource):
        async def describe(self):
            return (await super().describe())._replace(high_watermark=Offset(-1))

    with pytest.raises(ApiError, match="LEADER_NOT_AVAILABLE"):
        await export(WithoutLeader(small_log()), tmp_path / "export")
    assert not (tmp_path / "export").exists()


@pytest.mark.parametrize("name", ["notes.txt", "log/messages", "_manifest/mine.json", ".git"])
async def test_a_directory_of_something_else_is_refused_and_left_alone(tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    with pytest.raises(DirectoryError, match="not part of an export"):
        await export(MemorySource(small_log()), tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.suffix == ".parquet"] == []
    assert (tmp_path / name).read_text() == "mine"


async def test_a_file_in_the_place_of_the_directory_is_refused(tmp_path):
    (tmp_path / "export").write_text("mine")
    with pytest.raises(DirectoryError, match="not a directory"):
        await export(MemorySource(small_log()), tmp_path / "export")


async def test_damage_is_found(tmp_path):
    await export(MemorySource(small_log()), tmp_path)
    file = tmp_path / verify(tmp_path).files[1].name
    content = bytearray(file.read_bytes())
    content[40] ^= 1
    file.write_bytes(content)
    with pytest.raises(CorruptLog, match=r"-2\.parquet is damaged"):
        verify(tmp_path)
    file.unlink()
    with pytest.raises(CorruptLog, match=r"-2\.parquet is missing"):
        verify(tmp_path)


async def test_an_export_whose_file_is_missing_or_of_another_size_is_not_continued(tmp_path):
    await export(MemorySource(small_log().up_to(6)), tmp_path)
    (file,) = (tmp_path / "log").iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(
        CorruptLog, match=r"-1\.parquet is damaged: it has \d+ bytes, but \d+ were written; export again"
    ):
        await export(MemorySource(small_log()), tmp_path)
    file.unlink()
    with pytest.raises(CorruptLog, match=r"-1\.parquet is missing"):
        await export(MemorySource(small_log()), tmp_path)
    assert list((tmp_path / "log").iterdir()) == []
