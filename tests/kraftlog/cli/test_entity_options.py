"""What the commands make of their options: whose configs, one config each, partitions at their limit; and one loop."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kraftbase.errors import ConfigurationError, ErrorCode
from kraftlog.commands import reassignments
from kraftlog.commands.config_admin import check_one_each
from kraftlog.commands.partition_admin import PartitionFilter, partition_rows
from statemachine.query.descriptions import ConfigValue, PartitionDescription, TopicDescription
from tests.kraftlog.command_line import Run, run

__all__ = ["run"]

AT_NOWHERE = ("--bootstrap-server", "127.0.0.1:1")


def test_several_configs_in_one_option_as_kafka_has_them_are_told_to_be_given_apart() -> None:
    with pytest.raises(ConfigurationError, match=r"retention.ms continues with cleanup.policy=; give each"):
        check_one_each({"retention.ms": "1,cleanup.policy=compact"})
    lists = {"cleanup.policy": "compact,delete", "leader.replication.throttled.replicas": "0:1,1:2"}
    assert check_one_each(lists) == lists


def test_nothing_is_altered_without_saying_whose_it_is(run: Run) -> None:
    said = run("configs", "alter", *AT_NOWHERE, "--entity-type", "brokers", "--add-config", "min.insync.replicas=2")
    assert (said.code, said.output) == (2, "")
    assert "to say whose configs are meant" in said.errors


def test_where_configs_come_from_is_told_of_one_entity(run: Run) -> None:
    said = run("configs", "describe", *AT_NOWHERE, "--entity-type", "topics", "--all")
    assert (said.code, said.output) == (2, "")
    assert "--all: give it with --entity-name" in said.errors


@pytest.mark.parametrize("command", [("describe",), ("alter", "--add-config", "min.insync.replicas=2")])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("brokers", "--entity-name", "1", "--entity-default"), "to say whose configs are meant"),
        (("topics", "--entity-default"), "topics have no default entity"),
        (("topics", "--entity-name", ""), "topics have no default entity"),
    ],
)
def test_whose_configs_are_meant_is_said_in_one_way(
    run: Run, command: tuple[str, ...], options: tuple[str, ...], words: str
) -> None:
    said = run("configs", *command, *AT_NOWHERE, "--entity-type", *options)
    assert (said.code, said.output) == (2, "")
    assert words in said.errors


def test_the_default_of_all_brokers_has_an_option_and_an_empty_name(run: Run) -> None:
    for options in (("--entity-default",), ("--entity-name", ""), ()):
        said = run("configs", "describe", *AT_NOWHERE, "--entity-type", "brokers", *options)
        assert said.is_error(ErrorCode.BROKER_NOT_AVAILABLE)


def test_partitions_with_just_as_many_in_sync_as_there_must_be_are_found() -> None:
    partitions = tuple(
        PartitionDescription(number, 1, leader_epoch=0, partition_epoch=0, replicas=(1, 2, 3), isr=isr)
        for number, isr in enumerate([(1,), (1, 2), (1, 2, 3)])
    )
    topic = TopicDescription("clicks", "", partitions, (ConfigValue("min.insync.replicas", "2"),))
    assert [row["Partition"] for row in partition_rows([topic], PartitionFilter(at_min_isr=True))] == [1]


def test_the_asynchronous_parts_of_a_command_share_an_event_loop(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loops = []

    async def told(*arguments: object) -> list[object]:
        loops.append(asyncio.get_running_loop())
        return []

    async def present(*arguments: object) -> dict[object, object]:
        await told()
        return {}

    monkeypatch.setattr(reassignments, "present_assignment", present)
    monkeypatch.setattr(reassignments, "execute", told)
    file = tmp_path / "moves.json"
    file.write_text('{"partitions": [{"topic": "clicks", "partition": 0, "replicas": [1]}]}')
    assert run("reassign", "execute", *AT_NOWHERE, "--file", file).code == 0
    first, second = loops
    assert first is second
    assert first.is_closed()
