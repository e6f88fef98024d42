"""`kraftlog sql`: what it takes for a statement, and how long it waits for a node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kraftbase.errors import ErrorCode
from kraftlog.admin.client.client import AdminClient
from kraftlog.admin.client.node_reader import QUERY_SECONDS_MAX
from kraftlog.commands import admin
from statemachine.store.store import MetadataStore
from statemachine.words.limits import STATEMENT_SECONDS_MAX
from tests.kraftlog.admin.admin_nodes import admin_cluster
from tests.kraftlog.command_line import Run, kraftlog
from tests.statemachine.builders import CLUSTER_ID


async def test_a_query_is_waited_for_longer_than_a_node_lets_it_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeouts_ms = []
    begin = AdminClient.__init__

    def told(client: AdminClient, *addresses: Any, timeout_ms: int) -> None:
        timeouts_ms.append(timeout_ms)
        begin(client, *addresses, timeout_ms=timeout_ms)

    monkeypatch.setattr(AdminClient, "__init__", told)
    async with admin_cluster(tmp_path) as cluster:
        assert (await admin.query((cluster.endpoints[1],), "SELECT 1 AS one")) == (("one",), ((1,),))
    assert timeouts_ms[0] / 1_000 > QUERY_SECONDS_MAX > STATEMENT_SECONDS_MAX


@pytest.mark.parametrize(
    "arguments",
    [
        ["-- which\nSELECT 1 AS one", "--output", "json"],
        ["--output", "json", "--which\nSELECT 1 AS one"],
        ["--output", "json", "--", "-- which\nSELECT 1 AS one"],
        ["--output=json", "--", "--which=all\nSELECT 1 AS one"],
    ],
)
def test_a_statement_may_begin_with_a_comment(run: Run, tmp_path: Path, arguments: list[str]) -> None:
    MetadataStore.open(tmp_path / "metadata.db", CLUSTER_ID).close()
    assert run("sql", "--directory", tmp_path, *arguments).json() == [{"one": 1}]


def test_an_option_that_is_none_is_still_told(run: Run, tmp_path: Path) -> None:
    said = run("sql", "--directory", tmp_path, "--outputs", "json", "SELECT 1")
    assert said.code == 2
    assert "--outputs" in said.errors


def test_a_comment_alone_is_no_statement(run: Run, tmp_path: Path) -> None:
    MetadataStore.open(tmp_path / "metadata.db", CLUSTER_ID).close()
    assert run("sql", "--directory", tmp_path, "-- which").is_error(ErrorCode.INVALID_REQUEST, "is no statement")


def test_answers_are_printed_as_csv(run: Run, tmp_path: Path) -> None:
    MetadataStore.open(tmp_path / "metadata.db", CLUSTER_ID).close()
    said = run("sql", "--directory", tmp_path, "--output", "csv", "SELECT 1 AS one, NULL AS none, 'a,\"b' AS text")
    assert said.lines() == ["one,none,text", '1,,"a,""b"']


def test_statements_and_commands_are_read_from_standard_input(tmp_path: Path) -> None:
    MetadataStore.open(tmp_path / "metadata.db", CLUSTER_ID).close()
    given = ".tables\n.mode csv\nSELECT 1\n  AS one;\n.schema topics\n"
    printed = kraftlog("sql", "--directory", tmp_path, given=given).lines()
    assert {"topics", "replicas"} <= set(printed)
    assert printed[printed.index("one") + 1] == "1"
    assert printed[-1].endswith(";")
    refused = kraftlog("sql", "--directory", tmp_path, given=".foo\nSELECT 1;\n")
    assert refused.is_error(ErrorCode.INVALID_REQUEST, "command '.foo' does not exist; .help lists the commands")


def test_a_command_may_stand_for_the_statement(run: Run, tmp_path: Path) -> None:
    MetadataStore.open(tmp_path / "metadata.db", CLUSTER_ID).close()
    assert "topics" in run("sql", "--directory", tmp_path, ".tables").lines()
