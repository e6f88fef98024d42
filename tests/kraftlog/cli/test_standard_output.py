"""Standard output that is full, closed, or of another encoding than what is printed: one line at most, no traceback."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from kraftbase.errors import ErrorCode
from tests.kraftlog.admin.admin_nodes import admin_cluster
from tests.kraftlog.command_line import Finished, command, environment

BUFFERED, UNBUFFERED = {"PYTHONUNBUFFERED": ""}, {"PYTHONUNBUFFERED": "1"}


def with_output(redirection: str, *arguments: object, **changes: str) -> Finished:
    """Run a command as a shell does with its standard streams redirected."""
    ended = subprocess.run(
        ["bash", "-c", f'"$@" {redirection}', "bash", *command(*arguments)],
        capture_output=True,
        env=environment(**changes),
        timeout=60,
    )
    return Finished(ended.returncode, ended.stdout.decode("latin-1"), ended.stderr.decode())


@pytest.mark.parametrize("changes", [BUFFERED, UNBUFFERED])
@pytest.mark.parametrize("arguments", [("random-uuid",), ("--help",)])
def test_a_full_disk_is_one_line(arguments: tuple[str, ...], changes: dict[str, str]) -> None:
    said = with_output("> /dev/full", *arguments, **changes)
    assert said.is_error(ErrorCode.KAFKA_STORAGE_ERROR, "standard output cannot be written: No space left on device")


@pytest.mark.parametrize("redirection", [">&-", "<&- >&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_failure(redirection: str) -> None:
    assert with_output(redirection, "random-uuid") == Finished(0, "", "")


def test_an_error_is_told_though_standard_output_is_closed(tmp_path: Path) -> None:
    said = with_output(">&-", "dump-log", tmp_path / "none.log")
    assert said.is_error(ErrorCode.KAFKA_STORAGE_ERROR, "none.log")


@pytest.mark.process
async def test_what_an_encoding_does_not_have_is_a_question_mark(tmp_path: Path) -> None:
    async with admin_cluster(tmp_path) as cluster:
        arguments = ("topics", "list", "--bootstrap-server", cluster.endpoints[1])
        said = await asyncio.to_thread(with_output, "", *arguments, PYTHONIOENCODING="latin-1")
    assert "?????" in said.lines()[1]
