"""A command whose reader goes away ends quietly, as one that SIGPIPE ends: `kraftlog topics list | head -n 1`."""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.kraftlog.admin.admin_nodes import admin_cluster
from tests.kraftlog.command_line import command, environment, kraftlog

EXIT_READER_GONE = 141
MANY_ROWS = """WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers LIMIT 2000)
  SELECT n, printf('%02000d', n) AS digits FROM numbers"""
"""More than a pipe holds."""

BUFFERED = environment(PYTHONUNBUFFERED="")
"""As users have it: Python without buffers does not notice that a pipe took only a part."""


def without_a_reader(*arguments: object) -> tuple[int, str]:
    """The exit code and standard error of a command that writes to a pipe that is no longer read."""
    reading_end, writing_end = os.pipe()
    os.close(reading_end)
    try:
        ended = subprocess.run(
            command(*arguments), stdout=writing_end, stderr=subprocess.PIPE, env=BUFFERED, text=True, timeout=60
        )
    finally:
        os.close(writing_end)
    return ended.returncode, ended.stderr


@pytest.mark.parametrize("arguments", [("random-uuid",), ("--help",), ("topics", "list", "--help")])
def test_lines_and_help_that_nobody_reads(arguments: tuple[str, ...]) -> None:
    assert without_a_reader(*arguments) == (EXIT_READER_GONE, "")


def test_an_error_is_told_though_nobody_reads_what_there_was(tmp_path: Path) -> None:
    code, errors = without_a_reader("dump-log", tmp_path / "none.log")
    assert (code, errors.count("\n")) == (1, 1)
    assert errors.startswith("error: ")


@pytest.mark.process
async def test_tables_and_json_that_nobody_reads(tmp_path: Path) -> None:
    async with admin_cluster(tmp_path) as cluster:
        at = ("--bootstrap-server", str(cluster.endpoints[1]))
        for arguments in (("topics", "list"), ("topics", "list", "--output", "json"), ("features", "describe")):
            assert (await asyncio.to_thread(kraftlog, *arguments, *at)).code == 0
            assert await asyncio.to_thread(without_a_reader, *arguments, *at) == (EXIT_READER_GONE, "")


@pytest.mark.process
@pytest.mark.parametrize("options", [(), ("--output", "json")])
async def test_a_reader_that_has_enough_of_it(tmp_path: Path, options: tuple[str, ...]) -> None:
    async with admin_cluster(tmp_path) as cluster:
        line = command("sql", MANY_ROWS, *options, "--bootstrap-server", cluster.endpoints[1])
        ended = await asyncio.to_thread(
            subprocess.run,
            ["bash", "-c", f'{shlex.join(line)} | head -n 1; exit "${{PIPESTATUS[0]}}"'],
            capture_output=True,
            text=True,
            env=BUFFERED,
            timeout=60,
        )
    assert (ended.returncode, ended.stderr, len(ended.stdout.splitlines())) == (EXIT_READER_GONE, "", 1)


@pytest.mark.process
async def test_a_reader_that_goes_while_there_is_nothing_to_print(tmp_path: Path) -> None:
    async with admin_cluster(tmp_path) as cluster:
        line = command("watch", "--bootstrap-server", cluster.endpoints[1])
        process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=BUFFERED)
        with process:
            assert (await asyncio.to_thread(process.stdout.readline)).startswith("{")
            process.stdout.close()
            try:
                assert await asyncio.to_thread(process.wait, 30) == EXIT_READER_GONE
                assert process.stderr.read() == ""
            finally:
                process.kill()
