"""The file with what a broker has: it reads back, and nothing else does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kraftbase.errors import ConfigurationError
from kraftlog.offline.adoption.broker_report import decode_report, encode_report
from tests.kraftlog.offline.adoption.builders import log, report

REPORT = report(1, log(10, 3), log(0, -1, number=2, is_damaged=True), end_offset=77, epoch=5)


def test_a_report_reads_back() -> None:
    assert decode_report(encode_report(REPORT), "r") == replace(
        REPORT, logs=tuple(sorted(REPORT.logs, key=lambda of: of.topic))
    )


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (encode_report(REPORT).replace(b'"metadataEndOffset": 77', b'"metadataEndOffset": 78'), "was changed"),
        (encode_report(REPORT).replace(b'"version": 1', b'"version": 2'), "of version 2"),
        (encode_report(REPORT)[:-9], "is not a broker's report"),
        (b"[]", "is not a broker's report"),
        (b"[" * 100_000, "is not a broker's report"),
        (b"", "is not a broker's report"),
    ],
)
def test_another_file_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        decode_report(data, "r")


def test_the_disks_have_an_id_that_depends_on_what_is_in_the_logs_alone() -> None:
    moved = replace(REPORT, cluster_id="another", metadata_end_offset=5, metadata_epoch=9, logs=REPORT.logs[::-1])
    assert moved.disk_id == REPORT.disk_id
    longer = report(1, log(11, 3), *REPORT.logs[1:])
    assert len({REPORT.disk_id, longer.disk_id, replace(REPORT, broker_id=2).disk_id}) == 3
