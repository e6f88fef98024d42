"""What one of Kafka's directories says about its cluster: node, quorum, voters, snapshots, epochs, segments, bootstrap
records.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from kraftbase.errors import StorageError
from kraftbase.ids import id_to_text
from kraftlog.kafka.control_records import KRaftVersionRecord, VotersRecord, VotersVoter
from kraftlog.offline.kafka.batch_files import BrokenEnd, control_of, records_of
from kraftlog.offline.kafka.checkpoints import checkpoint_records, read_header
from kraftlog.offline.kafka.directory import (
    EPOCHS_NAME,
    Checkpoint,
    KafkaDirectory,
    Progress,
    log_batches,
)
from kraftlog.offline.kafka.dump import type_name
from kraftlog.offline.kafka.secrets import shown_fields
from kraftlog.offline.kafka.small_files import read_epoch_starts
from kraftlog.offline.snapshot_files import timestamp_text
from snapshot.names import BOOTSTRAP_NAME

VOTER_COLUMNS: Final = ("VoterId", "DirectoryId", "Endpoints")
SNAPSHOT_COLUMNS: Final = ("EndOffset", "Epoch", "SizeBytes", "LastContainedLogTimestamp", "Records", "Problem")
EPOCH_COLUMNS: Final = ("Epoch", "StartOffset")
SEGMENT_COLUMNS: Final = ("BaseOffset", "SizeBytes", "File")
BOOTSTRAP_COLUMNS: Final = ("Type", "Data")


class _Tail(NamedTuple):
    """The records after the newest snapshot."""

    end_offset: int
    epoch: int
    kraft_version: int
    voters: tuple[VotersVoter, ...]
    broken_end: BrokenEnd | None


def describe(directory: KafkaDirectory, progress: Progress | None = None) -> dict[str, Any]:
    """The whole description, under the names of `kraftlog quorum describe`. Raises StorageError. Snapshots that are not
    whole have a `Problem`. The log is read from the newest snapshot on.
    """
    identity, state = directory.identity, directory.quorum_state()
    tail = _read_tail(directory, progress)
    epochs = directory.partition / EPOCHS_NAME
    newest = directory.newest_checkpoint
    voters = [_voter_row(voter) for voter in tail.voters]
    if not voters and state is not None and state.voter_ids is not None:
        voters = [{"VoterId": voter_id, "DirectoryId": None, "Endpoints": []} for voter_id in state.voter_ids]
    return {
        "Directory": str(directory.path),
        "ClusterId": identity.cluster_id,
        "NodeId": identity.node_id,
        "DirectoryId": identity.directory_id,
        "LeaderId": None if state is None else state.leader_id,
        "LeaderEpoch": None if state is None else state.leader_epoch,
        "VotedId": None if state is None else state.voted_id,
        "VotedDirectoryId": None if state is None else state.voted_directory_id,
        "QuorumStateVersion": None if state is None else state.data_version,
        "KRaftVersion": tail.kraft_version,
        "LogStartOffset": directory.segments[0].base_offset if directory.segments else tail.end_offset,
        "LogEndOffset": tail.end_offset,
        "LastEpoch": tail.epoch,
        "CommittedAtLeast": 0 if newest is None else newest.snapshot_id.offset,
        "TornTail": None if tail.broken_end is None else str(tail.broken_end),
        "Voters": sorted(voters, key=lambda row: row["VoterId"]),
        "Snapshots": [_snapshot_row(checkpoint, progress) for checkpoint in directory.checkpoints],
        "Epochs": [
            {"Epoch": start.epoch, "StartOffset": start.start_offset}
            for start in (read_epoch_starts(epochs) if epochs.exists() else ())
        ],
        "Segments": [
            {"BaseOffset": base, "SizeBytes": path.stat().st_size, "File": path.name}
            for base, path in directory.segments
        ],
        "Bootstrap": _bootstrap_rows(directory),
    }


def _read_tail(directory: KafkaDirectory, progress: Progress | None) -> _Tail:
    newest = directory.newest_checkpoint
    end_offset, epoch = (0, 0) if newest is None else (newest.snapshot_id.offset, newest.snapshot_id.epoch)
    kraft_version, voters = 0, tuple[VotersVoter, ...]()
    header_path = directory.partition / BOOTSTRAP_NAME if newest is None else newest.path
    if header_path.exists():
        header = read_header(header_path)
        kraft_version, voters = header.kraft_version, header.voters
    broken_end = None
    for found in log_batches(directory, end_offset, progress):
        if isinstance(found, BrokenEnd):
            broken_end = found
            break
        end_offset, epoch = found.batch.end_offset, found.batch.partition_leader_epoch
        if not found.batch.is_control:
            continue
        for record in records_of(found.path, found.batch):
            match control_of(found.path, record):
                case KRaftVersionRecord() as version:
                    kraft_version = version.kraft_version
                case VotersRecord() as written:
                    voters = written.voters
    return _Tail(end_offset, epoch, kraft_version, voters, broken_end)


def _bootstrap_rows(directory: KafkaDirectory) -> list[dict[str, Any]]:
    path = directory.bootstrap_checkpoint
    records = () if path is None else checkpoint_records(path)
    return [{"Type": type_name(type(record)), "Data": shown_fields(record, version)} for record, version in records]


def _voter_row(voter: VotersVoter) -> dict[str, Any]:
    return {
        "VoterId": voter.voter_id,
        "DirectoryId": id_to_text(voter.voter_directory_id),
        "Endpoints": [f"{at.name}://{at.host}:{at.port}" for at in voter.endpoints],
    }


def _snapshot_row(checkpoint: Checkpoint, progress: Progress | None) -> dict[str, Any]:
    row: dict[str, Any] = {
        "EndOffset": checkpoint.snapshot_id.offset,
        "Epoch": checkpoint.snapshot_id.epoch,
        "SizeBytes": checkpoint.path.stat().st_size,
        "LastContainedLogTimestamp": None,
        "Records": None,
        "Problem": None,
    }
    try:
        row["LastContainedLogTimestamp"] = timestamp_text(read_header(checkpoint.path).last_contained_log_timestamp_ms)
        row["Records"] = sum(1 for _ in checkpoint_records(checkpoint.path, progress))
    except StorageError as error:
        row["Problem"] = str(error)
    return row
