"""`kraftlog dump-log` (OT-20): every frame and every damaged stretch as a line of JSON (OT-21)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kraftbase.errors import ErrorCode
from kraftbase.types import Epoch, Offset
from raft.storage.batch import encode_batch
from raft.storage.frame import encode_frames
from tests.kraftlog.analytics.logs import small_log
from tests.kraftlog.command_line import Run
from tests.kraftlog.node_directories import contents, flip, make_node_directory, segments


@pytest.fixture
def node(tmp_path: Path) -> Path:
    return make_node_directory(tmp_path / "node")


def dump(run: Run, *arguments: object) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run("dump-log", *arguments).lines()]


def test_a_nodes_log_is_its_batches_in_order_and_a_marker(run: Run, node: Path) -> None:
    before = contents(node)
    lines = dump(run, node)
    assert contents(node) == before
    batches = small_log().batches
    assert [(line["baseOffset"], line["lastOffset"], line["epoch"]) for line in lines[:-1]] == [
        (batch.base_offset, batch.last_offset, batch.epoch) for batch in batches
    ]
    assert [line["isControl"] for line in lines[:-1]] == [batch.is_control for batch in batches]
    assert [line["file"] for line in lines if line["position"] == 0] == [path.name for path in segments(node)]
    assert all(line["chained"] for line in lines)
    assert lines[-1] == {
        "file": segments(node)[-1].name,
        "kind": "marker",
        "position": 271,
        "endPosition": 303,
        "durableBefore": 30,
        "chained": True,
    }
    assert dump(run, node / "log") == lines


def test_one_segment_is_dumped_alone_and_nothing_is_known_of_the_one_before(run: Run, node: Path) -> None:
    lines = dump(run, segments(node)[1])
    assert [line["chained"] for line in lines] == [None, *[True] * (len(lines) - 1)]
    assert not any("misfits" in line for line in lines)


def test_records_are_decoded_as_watch_prints_them(run: Run, node: Path) -> None:
    lines = dump(run, node, "--decode")
    records = [record for line in lines for record in line.get("records", [])]
    assert [record["offset"] for record in records] == list(range(small_log().end_offset))
    assert {"LEADER_CHANGE", "TOPIC_RECORD", "PARTITION_RECORD"} <= {record["type"] for record in records}
    topics = [record["data"]["name"] for record in records if record["type"] == "TOPIC_RECORD"]
    assert topics == ["orders", "clicks", "clicks", "gone"]


def test_a_body_that_is_none_does_not_end_the_dump(run: Run, tmp_path: Path) -> None:
    bad = [
        encode_batch(Offset(offset), Epoch(1), b"\xff\xff", 1, 1_700_000_000_000, is_control=is_control)
        for offset, is_control in enumerate((False, True, False))
    ]
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(encode_frames(bad, 0, 0, 0)[0])
    lines = dump(run, path, "--decode")
    assert ["undecodable" in line for line in lines] == [True, True, True]


def test_damage_is_a_line_of_its_own_and_the_dump_goes_on_behind_it(run: Run, node: Path) -> None:
    path = segments(node)[1]
    sound = dump(run, node)
    flip(path, 300)
    lines = dump(run, node)
    (damaged,) = [line for line in lines if "damage" in line]
    assert damaged == {
        "file": path.name,
        "damage": "a frame whose checksum does not match",
        "from": 292,
        "to": 394,
        "lostSector": False,
    }
    at = lines.index(damaged)
    assert lines[:at] == sound[:at]
    assert lines[at + 1] == {**sound[at + 1], "chained": None}
    assert lines[at + 2 :] == sound[at + 2 :]


def test_frames_that_do_not_go_on_say_why(run: Run, node: Path) -> None:
    first, second, third = segments(node)
    third.write_bytes(second.read_bytes())
    lines = dump(run, third)
    assert lines[0]["misfits"] == ["it starts at offset 13, where 26 is next"]
    assert first.exists()


def test_any_file_can_be_dumped(run: Run, node: Path, tmp_path: Path) -> None:
    assert [line["damage"] for line in dump(run, node / "meta.properties")] == ["garbage"]
    empty = tmp_path / "empty"
    empty.write_bytes(b"")
    assert dump(run, empty) == []


def test_what_cannot_be_dumped_is_one_line(run: Run, tmp_path: Path) -> None:
    said = run("dump-log", tmp_path / "nowhere")
    assert said.is_error(ErrorCode.KAFKA_STORAGE_ERROR, "nowhere: No such file")
    assert run("dump-log", tmp_path).is_error(ErrorCode.KAFKA_STORAGE_ERROR, "holds no segments")
    assert run("dump-log").code == run("dump-log", "").code == 2
