"""What a stopped broker has on its disks, as a file that a restore reads: a report. The file is JSON with a digest. Two
reports of the same directories always have the same content. `kraftlog brokers adopt` uses this to check that a cluster
was restored with this broker's report.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, NamedTuple
from uuid import UUID

from kraftbase.errors import ConfigurationError
from kraftbase.uuids import uuid_from_text, uuid_to_text

VERSION: Final = 1
REPORT_BYTES_MAX: Final = 256 * 1024 * 1024
"""A larger file is not a report: it would list a million logs."""


class Rank(NamedTuple):
    """How many of the acknowledged records a log has: of two logs, the one with the greater value has all that the
    other one has.
    """

    is_whole: bool
    last_epoch: int
    log_end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedLog:
    """The log of one replica."""

    topic: str
    partition_id: int
    topic_id: UUID
    directory_id: UUID
    """The log directory that it is in."""
    log_start_offset: int
    log_end_offset: int
    last_epoch: int
    """The leader epoch of its last record; -1 if it is not known, or the log never had a record."""
    latest_epoch: int
    """The highest known leader epoch, with records or without; -1 if none."""
    is_damaged: bool
    """Whether records are missing that were here."""

    @property
    def rank(self) -> Rank:
        """The order by which the leader's log is chosen (CT-39). Each leader was in sync when it was elected. So a log
        with a record of a leader's epoch has all records acknowledged before that epoch, and of two logs that end in
        the same epoch the longer one has all that the other one has.
        """
        return Rank(not self.is_damaged, self.last_epoch, self.log_end_offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerReport:
    """The disks of one stopped broker."""

    broker_id: int
    cluster_id: str
    metadata_end_offset: int
    """The end offset of the metadata that the broker has seen, by its database and its last registration."""
    metadata_epoch: int
    """The epoch of the last metadata batch that the broker has applied."""
    directory_ids: tuple[UUID, ...]
    """The ids of the log directories that were read."""
    logs: tuple[ReportedLog, ...]

    @property
    def disk_id(self) -> UUID:
        """A digest of the content of the log directories, and of nothing else."""
        disks = {"broker": self.broker_id, **_disks(self)}
        return UUID(bytes=sha256(_canonical(disks)).digest()[:16], version=4)


def encode_report(report: BrokerReport) -> bytes:
    """The content of the file."""
    content = {
        "broker": report.broker_id,
        "clusterId": report.cluster_id,
        "metadataEndOffset": report.metadata_end_offset,
        "metadataEpoch": report.metadata_epoch,
        **_disks(report),
    }
    whole = {"version": VERSION, "digest": sha256(_canonical(content)).hexdigest(), "report": content}
    return json.dumps(whole, indent=1).encode() + b"\n"


def decode_report(data: bytes, path: str) -> BrokerReport:
    """The report in a file's content. Raises ConfigurationError naming `path` if the content is not a report, or was
    changed.
    """
    try:
        whole = json.loads(data)
        version, content = whole["version"], whole["report"]
        if version != VERSION:
            raise ConfigurationError(f"{path} is a report of version {version}; this program reads version {VERSION}")
        if whole["digest"] != sha256(_canonical(content)).hexdigest():
            raise ConfigurationError(f"{path} was changed: its digest does not match; copy or make it again")
        return BrokerReport(
            broker_id=int(content["broker"]),
            cluster_id=str(content["clusterId"]),
            metadata_end_offset=int(content["metadataEndOffset"]),
            metadata_epoch=int(content["metadataEpoch"]),
            directory_ids=tuple(map(uuid_from_text, content["directories"])),
            logs=tuple(map(_log, content["logs"])),
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ConfigurationError(f"{path} is not a broker's report; make one with `kraftlog brokers report`") from None


def _disks(report: BrokerReport) -> dict[str, Any]:
    return {
        "directories": sorted(map(uuid_to_text, report.directory_ids)),
        "logs": sorted(
            [
                log.topic, log.partition_id, uuid_to_text(log.topic_id), uuid_to_text(log.directory_id),
                log.log_start_offset, log.log_end_offset, log.last_epoch, log.latest_epoch, log.is_damaged,
            ]
            for log in report.logs
        ),
    }  # fmt: skip


def _log(row: list[Any]) -> ReportedLog:
    topic, partition_id, topic_id, directory_id, start, end, last_epoch, latest_epoch, is_damaged = row
    return ReportedLog(
        topic=str(topic), partition_id=int(partition_id), topic_id=uuid_from_text(topic_id),
        directory_id=uuid_from_text(directory_id), log_start_offset=int(start), log_end_offset=int(end),
        last_epoch=int(last_epoch), latest_epoch=int(latest_epoch), is_damaged=bool(is_damaged),
    )  # fmt: skip


def _canonical(content: object) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
