"""What errors advise is followed to the letter, whatever the other voters are at: nothing acknowledged is lost.

Node 3 has acknowledged everything, together with node 1. While it is down one of its files is lost, or damaged, or
brought back from an older copy. It is started; if it refuses, what its error says is done, and nothing else.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from kraftbase.errors import KraftlogError
from kraftbase.files.posix import PosixFileSystem
from kraftbase.types import NodeId
from raft.storage.advice import NOBODY_TO_FETCH_FROM, REPLACE_THE_DISK
from raft.storage.directory import DataDirectory
from snapshot.log_start_policy import LogStartConfig
from statemachine.store.snapshot_generator import SnapshotConfig
from tests.kraftlog.acknowledged import PAUSE_SECONDS, AcknowledgingNodes, copied, gone
from tests.paths import ROOT
from tests.statemachine.waiting import until

VICTIM: Final = 3
FILES: Final = ("log", "log/log-start*", "quorum-state-*", "meta.properties")
HEALED: Final = ("log/log-start", "quorum-state-0", "metadata.db*", "snapshots")
"""Files that the node has twice, or rebuilds: one state of the other nodes, the hardest, is enough for these."""
WAYS: Final = ("lost", "damaged", "rolled back")
CASES: Final = [
    ("one lagging", "log", WAYS),
    ("one lagging", "quorum-state-*", WAYS[2:]),
    *(
        pytest.param("one lagging", file, WAYS, marks=pytest.mark.slow)
        for file in ("quorum-state-*", "log/log-start*", "meta.properties")
    ),
    *(pytest.param(others, file, WAYS, marks=pytest.mark.slow) for others in ("up", "one down") for file in FILES),
    *(pytest.param("one lagging", file, WAYS, marks=pytest.mark.slow) for file in HEALED),
]


def harm(directory: Path, older: Path, file: str, way: str) -> None:
    """Lose, damage, or bring back from an older copy of the directory, what has that name."""
    paths = sorted(directory.glob(file))
    assert paths, f"there is no {file} to be harmed"
    for path in paths:
        old_path = older / path.relative_to(directory)
        if way == "rolled back" and old_path.exists():
            copied(old_path, path)
        elif way == "damaged":
            for part in sorted(path.rglob("*")) if path.is_dir() else [path]:
                if part.is_file() and part.stat().st_size > 40:
                    data = bytearray(part.read_bytes())
                    data[20] ^= 0xFF
                    part.chmod(0o600)
                    part.write_bytes(data)
        else:
            gone(path)


async def start_as_advised(nodes: AcknowledgingNodes, as_it_last_ran: Path, *, is_replaced: bool) -> None:
    """Start the victim. If it refuses, do one of the two things that its error says, and no more than that."""
    directory = nodes.path(VICTIM)
    try:
        await nodes.up(VICTIM)
    except KraftlogError as refused:
        advice = str(refused)
        assert REPLACE_THE_DISK in advice, advice
        directory.rename(directory.with_name("aside"))  # it may be the only one that has something: it is not deleted
        if is_replaced:
            DataDirectory.format(
                PosixFileSystem(),
                str(directory),
                cluster_id=nodes.cluster_id,
                node_id=NodeId(VICTIM),
                is_replacement=True,
            )
        else:
            copied(as_it_last_ran, directory)
        await nodes.up(VICTIM)


@pytest.mark.timeout(400)  # on one processor, three nodes' snapshots give way to whatever else runs there
@pytest.mark.parametrize(("others", "file", "ways"), CASES)
async def test_nothing_acknowledged_is_lost(tmp_path: Path, others: str, file: str, ways: Sequence[str]) -> None:
    async with AcknowledgingNodes(tmp_path) as nodes:
        nodes.settings |= {
            "snapshots": SnapshotConfig(max_bytes_between=500),
            "log_start": LogStartConfig(retention_bytes=0),
        }
        await nodes.up(1, 2, VICTIM)
        for way in ways:
            await nodes.write(1)
            await nodes.all_hold_what_was_acknowledged()
            while not nodes.nodes[VICTIM].log.log_start_offset:
                await nodes.write(1)  # until a second snapshot lets it move
                await asyncio.sleep(PAUSE_SECONDS)
            older = tmp_path / "older"
            if way == "rolled back":
                await nodes.down(VICTIM)
                copied(nodes.path(VICTIM), older)
                await nodes.up(VICTIM)
            if others != "up":
                await nodes.down(2)
            await nodes.write(2)
            await nodes.all_hold_what_was_acknowledged()
            if others == "one lagging":
                await nodes.down(1)
            await nodes.down(VICTIM)
            as_it_last_ran = copied(nodes.path(VICTIM), tmp_path / "as-it-last-ran")
            harm(nodes.path(VICTIM), older, file, way)
            if others == "one lagging":
                await nodes.up(2)
            await start_as_advised(nodes, as_it_last_ran, is_replaced=way != "lost")
            if others == "one lagging":
                await nobody_is_elected_who_lacks_something(nodes)
                await nodes.up(1)
            if others == "one down":
                await nodes.up(2)
            await nodes.all_hold_what_was_acknowledged()
            gone(nodes.path(VICTIM).with_name("aside"))
        await nodes.write(1)
        await nodes.all_hold_what_was_acknowledged()


async def nobody_is_elected_who_lacks_something(nodes: AcknowledgingNodes) -> None:
    """Node 2 lacks what nodes 1 and 3 have acknowledged: it does not lead, however long it is alone with node 3."""
    with pytest.raises(TimeoutError):
        await until(lambda: nodes.nodes[2].replica.is_leader, seconds=1)


# --- what no error says -----------------------------------------------------------------------------------------------

LOSES: Final = ("format a new", "from a backup", "remove this replica", "new cluster", "and let the node fetch")
"""What errors used to say. Followed to the letter, it lost what was acknowledged."""


def messages() -> Iterator[tuple[Path, str]]:
    for path in sorted((ROOT / "raft").rglob("*.py")):
        text = re.sub(r'"\s*\n\s*f?"', "", path.read_text())  # adjacent strings are one
        yield path, text


@pytest.mark.parametrize("advice", LOSES)
def test_no_error_of_a_node_advises_what_loses_something(advice: str) -> None:
    assert not [path for path, text in messages() if advice in text.lower()]


@pytest.mark.parametrize("advice", [REPLACE_THE_DISK, NOBODY_TO_FETCH_FROM])
def test_all_advice_keeps_what_is_there(advice: str) -> None:
    assert "Delete nothing" in advice
    assert "no older copy" in advice
