"""What a cluster begins with that is restored from a snapshot and adopts brokers (CT-39)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

import pytest

from kraftbase.errors import ConfigurationError
from kraftbase.types import Epoch, Offset
from kraftlog.offline.adoption.adopted_snapshot import (
    OFFSET_JUMP,
    PRODUCER_ID_JUMP,
    Adopting,
    Adoption,
    adopted_snapshot,
)
from kraftlog.offline.adoption.broker_report import BrokerReport
from kraftlog.offline.snapshot_files import open_snapshot
from kraftpb.v1.metadata_pb2 import MetadataRecord, ProducerIdsRecord, RegisterBrokerRecord
from raft.core.types import OffsetAndEpoch
from statemachine.store.image import load_image
from statemachine.store.metadata_tables import MetadataTables
from statemachine.tables.cluster_tables import BROKERS, PRODUCER_IDS
from statemachine.tables.database import open_database
from statemachine.tables.topic_tables import PARTITIONS
from statemachine.words.adopted_brokers import LEFT_OUT, adopted_as
from tests.kraftlog.offline.adoption.builders import log, report, write_snapshot
from tests.statemachine.builders import CLUSTER_ID, an_id, broker, partition, topic

PRODUCERS = MetadataRecord(producer_ids=ProducerIdsRecord(broker_id=1, broker_epoch=2, next_producer_id=4_000))
RECORDS = (broker(1, 2), broker(2, 2), topic("clicks", 1), partition(1), partition(1, 1), PRODUCERS)
REPORTS = (report(1, log(30, 4)), report(2, log(90, 4, directory=902), log(5, 1, directory=902, number=2)))


@dataclass
class Begun:
    """A snapshot of what a cluster begins with, loaded."""

    snapshot_id: OffsetAndEpoch
    data: bytes
    adoption: Adoption
    metadata: sqlite3.Connection

    def broker(self, broker_id: int) -> RegisterBrokerRecord:
        found = BROKERS.get(self.metadata, (broker_id,))
        assert found is not None
        return found


@contextmanager
def begun(
    tmp_path: Path,
    reports: Sequence[BrokerReport],
    *,
    records: Sequence[MetadataRecord] = RECORDS,
    keeps: bool = False,
    also: Sequence[str] = (),
) -> Iterator[Begun]:
    path = tmp_path / f"of-{len(list(tmp_path.iterdir()))}"
    path.mkdir()
    with (
        open_snapshot(write_snapshot(path, *records)) as source,
        adopted_snapshot(source, Adopting(reports, also, (1,) if keeps else None)) as (reader, adoption),
        closing(open_database(path / "loaded.db", CLUSTER_ID).conn) as metadata,
    ):
        reader.verify()
        load_image(reader, MetadataTables(metadata))
        yield Begun(reader.snapshot_id, Path(reader.path).read_bytes(), adoption, metadata)


def test_ct39_the_metadata_begins_above_all_that_an_adopted_broker_has_seen(tmp_path: Path) -> None:
    with begun(tmp_path, [report(1, end_offset=5_000, epoch=2), report(2, end_offset=70, epoch=9)]) as found:
        assert found.snapshot_id == OffsetAndEpoch(epoch=Epoch(9), offset=Offset(5_000 + OFFSET_JUMP))


def test_ct39_from_the_same_reports_in_any_order_come_the_same_bytes(tmp_path: Path) -> None:
    with begun(tmp_path, REPORTS) as one, begun(tmp_path, REPORTS[::-1]) as two:
        assert one.data == two.data
    with begun(tmp_path, [REPORTS[0]]) as other:
        assert other.data != one.data


def test_ct39_nobody_leads_before_it_has_come(tmp_path: Path) -> None:
    with begun(tmp_path, REPORTS) as found:
        assert [found.broker(number).fenced for number in (1, 2)] == [True, True]
        first, second = (of for _, of in PARTITIONS.find(found.metadata))
        assert ([*first.isr], first.leader, [*second.isr], second.leader) == ([2], -1, [1, 2], -1)


def test_ct39_an_adopted_broker_is_awaited_as_what_was_reported(tmp_path: Path) -> None:
    with begun(tmp_path, [REPORTS[0]]) as found:
        one, two = found.broker(1), found.broker(2)
        assert one.incarnation_id == adopted_as(REPORTS[0].disk_id)
        assert one.broker_epoch == found.snapshot_id.offset - 1
        assert (two.incarnation_id, two.broker_epoch) == (an_id(502), 2)
        assert found.adoption.brokers_left_out == [2]
    with begun(tmp_path, [REPORTS[0]], keeps=True) as found:
        two = found.broker(2)
        assert (two.incarnation_id, two.broker_epoch) == (LEFT_OUT, found.snapshot_id.offset - 1)


def test_ct39_a_reported_broker_that_came_after_the_snapshot_is_awaited_too(tmp_path: Path) -> None:
    """A partition may have been moved to it, and what was acknowledged since is there alone."""
    late = report(3, log(500, 8, directory=903))
    with begun(tmp_path, [*REPORTS, late]) as found:
        three = found.broker(3)
        assert (three.incarnation_id, three.fenced) == (adopted_as(late.disk_id), True)
        assert three.broker_epoch == three.last_unfenced_epoch == found.snapshot_id.offset - 1
        assert [*three.log_dirs] == [an_id(903)]
        (first, _) = (of for _, of in PARTITIONS.find(found.metadata))
        assert ([*first.replicas], [*first.isr]) == ([1, 2, 3], [3])


def test_ct39_logs_that_the_snapshot_lacks_are_strays(tmp_path: Path) -> None:
    elsewhere = log(7, 3, directory=903)
    with begun(tmp_path, [*REPORTS, report(3, elsewhere)]) as found:
        assert [(broker_id, of.topic, of.log_end_offset) for broker_id, of in found.adoption.strays] == [
            (2, "late", 5),
            (3, "clicks", 7),
        ]


def test_ct39_a_log_directory_that_was_not_reported_is_named_and_counts_as_unknown(tmp_path: Path) -> None:
    without = replace(report(1), directory_ids=(UUID(bytes=an_id(990)),))
    with begun(tmp_path, [without, REPORTS[1]]) as found:
        assert found.adoption.directories_left_out == [(1, UUID(bytes=an_id(901)))]
        assert [chosen.not_adopted for _, chosen in found.adoption.partitions] == [(1,), (1,)]


@pytest.mark.parametrize("records", [RECORDS, RECORDS[:-1]])
def test_ct39_producer_ids_that_were_given_since_are_not_given_again(
    tmp_path: Path, records: Sequence[MetadataRecord]
) -> None:
    """Else the first records of another producer would be taken for repeated ones."""
    with begun(tmp_path, REPORTS, records=records) as found:
        producers = PRODUCER_IDS.get(found.metadata, (1,))
        assert producers is not None
        assert producers.next_producer_id == PRODUCER_ID_JUMP + (4_000 if PRODUCERS in records else 0)


@pytest.mark.parametrize(
    ("reports", "words"),
    [
        ([*REPORTS, report(1)], "broker 1 has two reports"),
        ([report(1, cluster_id="MkU3OEVBNTcwNTJENDM2Qg")], "is of cluster MkU3"),
    ],
)
def test_reports_that_do_not_fit_are_refused(tmp_path: Path, reports: list[BrokerReport], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words), begun(tmp_path, reports):
        pass


def test_ct39_a_late_brokers_report_of_the_cluster_before_is_taken_if_that_is_said(tmp_path: Path) -> None:
    before = "MkU3OEVBNTcwNTJENDM2Qg"
    with begun(tmp_path, [report(1, log(9, 3), cluster_id=before), REPORTS[1]], also=[before]) as found:
        assert found.adoption.brokers == [1, 2]
