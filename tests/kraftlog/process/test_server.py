"""One node of the metadata service, wired whole."""

from __future__ import annotations

import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, CorruptLog, ErrorCode
from kraftbase.files.posix import PosixFileSystem
from kraftbase.types import NodeId, Offset
from kraftbase.uuids import random_cluster_id
from kraftlog import __version__
from kraftlog.admin.client.client import AdminClient
from kraftlog.admin.client.connection import connect
from kraftlog.config.config import NodeConfig
from kraftlog.controller import controller
from kraftlog.controller.decisions import Decision
from kraftlog.process.server import running_node
from kraftpb.v1 import snapshot_pb2, snapshot_pb2_grpc
from kraftpb.v1.metadata_pb2 import MetadataRecord, RemoveTopicRecord
from raft.client import RaftClient
from raft.storage.directory import DataDirectory
from statemachine.replay.deltas import MetadataDelta
from tests.kraftlog.process.test_controller_registration import registered
from tests.raft.nodes import free_port
from tests.statemachine.waiting import until


def formatted(directory: Path) -> NodeConfig:
    """A sole voter whose directory is ready."""
    listener = Endpoint("127.0.0.1", free_port())
    DataDirectory.format(PosixFileSystem(), str(directory), cluster_id=random_cluster_id(), node_id=NodeId(1))
    return NodeConfig(node_id=NodeId(1), directory=directory, listener=listener, voters=((NodeId(1), listener),))


async def test_a_voter_whose_log_is_gone_refuses_the_start_and_changes_nothing(tmp_path: Path) -> None:
    config = formatted(tmp_path / "node")
    async with running_node(config), AdminClient([config.listener]) as client:
        await client.register_broker(1, [("PLAINTEXT", "localhost", 9092)])
    for path in (tmp_path / "node" / "log").iterdir():
        path.unlink()
    with pytest.raises(CorruptLog, match="were durable"):
        async with running_node(config):
            pass
    assert list((tmp_path / "node" / "log").iterdir()) == []
    assert (tmp_path / "node" / "metadata.db").exists()


@pytest.mark.parametrize(("level", "reasons"), [("debug", ["it is the only voter"]), ("info", [])])
async def test_a_node_of_level_debug_logs_why_it_decides_as_it_does(
    tmp_path: Path, level: str, reasons: list[str]
) -> None:
    config = replace(formatted(tmp_path / "node"), log_level=level)
    with capture_logs() as lines:
        async with running_node(config):
            pass
    assert [line["reason"] for line in lines if line["event"] == "election begun"] == reasons


async def test_a_metadata_database_that_is_gone_is_made_again_from_the_log(tmp_path: Path) -> None:
    config = formatted(tmp_path / "node")
    async with running_node(config), AdminClient([config.listener]) as client:
        await client.register_broker(7, [("PLAINTEXT", "localhost", 9092)])
    for path in (tmp_path / "node").glob("metadata.db*"):
        path.unlink()
    async with running_node(config), AdminClient([config.listener]) as client:
        await client.register_broker(8, [("PLAINTEXT", "localhost", 9093)])
        brokers = (await client.list_brokers()).brokers
    assert [broker.broker_id for broker in brokers] == [7, 8]


async def test_a_metadata_database_that_is_gone_is_made_again_from_snapshot_and_log(tmp_path: Path) -> None:
    config = formatted(tmp_path / "node")
    async with running_node(config), AdminClient([config.listener]) as client:
        await client.register_broker(7, [("PLAINTEXT", "localhost", 9092)])
        async with connect(config.listener) as channel:
            stub = snapshot_pb2_grpc.SnapshotServiceStub(channel)
            taken = await stub.CreateSnapshot(snapshot_pb2.CreateSnapshotRequest())
        await client.register_broker(8, [("PLAINTEXT", "localhost", 9093)])
    for path in (tmp_path / "node").glob("metadata.db*"):
        path.unlink()
    with structlog.testing.capture_logs() as logs:
        async with running_node(config), AdminClient([config.listener]) as client:
            await client.register_broker(9, [("PLAINTEXT", "localhost", 9094)])
            brokers = (await client.list_brokers()).brokers
    loaded = [line["end_offset"] for line in logs if line["event"] == "snapshot loaded"]
    assert loaded == [taken.snapshot.snapshot_id.end_offset]
    assert [broker.broker_id for broker in brokers] == [7, 8, 9]


async def test_what_cannot_be_applied_is_refused_by_the_leader_which_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = formatted(tmp_path / "node")
    async with running_node(config) as node, AdminClient([config.listener]) as client:
        await client.register_broker(1, [("PLAINTEXT", "localhost", 9092)])
        await registered(client, 1)  # that is a record, too
        end_offset, epoch = node.replica.log_end_offset, node.replica.epoch
        with monkeypatch.context() as patch:
            poison = MetadataRecord(remove_topic=RemoveTopicRecord(topic_id=b"\1" * 16))
            patch.setattr(controller, "decide", lambda *_: Decision([poison]))
            with pytest.raises(ApiError) as refusal:
                await client.register_broker(2, [("PLAINTEXT", "localhost", 9093)])
        assert refusal.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
        elections = node.replica.epoch - epoch  # it has resigned, and each new epoch begins with a record
        assert node.replica.log_end_offset - end_offset in (0, elections)
        await client.register_broker(3, [("PLAINTEXT", "localhost", 9094)])
        assert node.replica.epoch > epoch
        assert [broker.broker_id for broker in (await client.list_brokers()).brokers] == [1, 3]
    async with running_node(config), AdminClient([config.listener]) as client:
        assert [broker.broker_id for broker in (await client.list_brokers()).brokers] == [1, 3]


async def test_a_program_appends_nothing_past_the_controller(tmp_path: Path) -> None:
    config = formatted(tmp_path / "node")
    async with running_node(config) as node, AdminClient([config.listener]) as client:
        await client.register_broker(1, [("PLAINTEXT", "localhost", 9092)])
        end_offset = node.replica.log_end_offset
        with pytest.raises(ApiError) as refusal:
            await RaftClient(node).append([b"poison"])
        assert refusal.value.code is ErrorCode.POLICY_VIOLATION
        assert node.replica.log_end_offset == end_offset


async def test_a_copied_directory_of_another_node_is_refused(tmp_path: Path) -> None:
    config = formatted(tmp_path / "node")
    shutil.copytree(tmp_path / "node", tmp_path / "copy")
    other = NodeConfig(node_id=NodeId(2), directory=tmp_path / "copy", listener=config.listener, voters=config.voters)
    with pytest.raises(Exception, match="node 1"):
        async with running_node(other):
            pass


class Brokers:
    """Which brokers a publisher has seen come."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def on_snapshot(self, end_offset: Offset, metadata: sqlite3.Connection) -> None:
        self.seen = [broker_id for (broker_id,) in metadata.execute("SELECT broker_id FROM brokers")]

    def on_delta(self, delta: MetadataDelta) -> None:
        self.seen += [broker.after.broker_id for broker in delta.brokers if broker.after is not None]


async def test_a_watcher_in_a_nodes_process_is_told_what_was_there_and_what_comes(tmp_path: Path) -> None:
    config = formatted(tmp_path / "node")
    async with running_node(config), AdminClient([config.listener]) as client:
        await client.register_broker(7, [("PLAINTEXT", "localhost", 9092)])
    brokers = Brokers()
    async with running_node(config, [brokers]), AdminClient([config.listener]) as client:
        await client.register_broker(8, [("PLAINTEXT", "localhost", 9093)])
        await until(lambda: len(brokers.seen) == 2)
    assert brokers.seen == [7, 8]


async def test_the_log_of_a_start_says_which_program_runs_and_what_it_has_found_in_less_than_ten_lines(
    tmp_path: Path,
) -> None:
    config = formatted(tmp_path / "node")
    for was_applied in (False, True):
        with capture_logs() as lines:
            async with running_node(config):
                await until(lambda: any(line["event"] == "controller active" for line in lines))
                told = [line for line in lines if line["log_level"] != "debug"]
        assert len(told) < 10, [line["event"] for line in told]
        (start,) = [line for line in told if line["event"] == "starting"]
        assert (start["version"], start["node"], start["role"]) == (__version__, 1, "voter")
        assert (start["applied_end_offset"] > 0, start["latest_snapshot"]) == (was_applied, None)
