"""The servers of a peer: an end at the start is told, and none lives on, however this process ends."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.bench.peers.processes import servers
from tests.kraftlog.command_line import environment

STARTS_A_SERVER = """
import asyncio, os, sys
from pathlib import Path
from kraftlog.bench.peers.processes import servers

async def main(directory):
    async with servers("peer", {"server": ["sh", "-c", f"echo $$ > {directory}/new; mv {directory}/new {directory}/pid; exec sleep 600"]}, directory, os.environ) as running:
        print(await running.until(lambda: pid(directory / "pid")), flush=True)
        await asyncio.Event().wait()

async def pid(path):
    return path.read_text().strip() if path.exists() else None

asyncio.run(main(Path(sys.argv[1])))
"""  # noqa: E501


async def nothing_yet() -> None:
    return None


async def test_a_server_that_ends_at_its_start_is_told_with_its_last_words(tmp_path: Path) -> None:
    commands = {"server": ["sh", "-c", "echo there is no room; exit 3"]}
    async with servers("peer", commands, tmp_path, os.environ) as running:
        with pytest.raises(
            ApiError, match="a server of peer ended with code 3; its last log lines: there is no room"
        ) as told:
            await running.until(nothing_yet)
    assert told.value.code is ErrorCode.BROKER_NOT_AVAILABLE


async def test_servers_end_with_the_block(tmp_path: Path) -> None:
    commands = {"server": ["sh", "-c", f"echo $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; exec sleep 600"]}

    async def pid() -> int | None:
        path = tmp_path / "pid"
        return int(path.read_text()) if path.exists() else None

    async with servers("peer", commands, tmp_path, os.environ) as running:
        server = await running.until(pid)
        os.kill(server, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(server, 0)


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv, of util-linux, is not installed")
def test_servers_end_when_this_process_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARTS_A_SERVER, str(tmp_path)], stdout=subprocess.PIPE, text=True, env=environment()
    ) as bench:
        assert bench.stdout is not None
        server = os.pidfd_open(int(bench.stdout.readline()))
        try:
            bench.kill()
            ended, _, _ = select.select([server], [], [], 30)
            assert ended == [server]
        finally:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(server, signal.SIGKILL)
            os.close(server)
