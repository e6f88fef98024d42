"""When a broker owes knowledge of a change, and that one which never learns of it is found."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kraftbase.endpoint import Endpoint
from kraftbase.types import NodeId
from kraftlog.chaos.arena import Arena
from kraftlog.chaos.brokers import freshness
from kraftlog.chaos.brokers.freshness import Freshness
from kraftlog.chaos.network import Loopback

VOTERS = [NodeId(1), NodeId(2), NodeId(3)]
BROKER = NodeId(101)


class Parts(SimpleNamespace):
    arena: Arena
    freshness: Freshness
    known: int
    """What the broker answers with."""


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Parts:
    async def alter_configs(alterations: Any) -> None:
        pass

    client = SimpleNamespace(alter_configs=alter_configs)
    cluster: Any = SimpleNamespace(voter_ids=VOTERS, node_ids=[*VOTERS, BROKER], client=client)
    arena = Arena(cluster, Loopback(), (), tmp_path / "journal.txt")
    arena.truth.running = {*VOTERS, BROKER}
    parts = Parts(arena=arena, freshness=Freshness(arena, {BROKER: Endpoint("localhost", 1)}, "large"), known=0)
    monkeypatch.setattr(freshness, "with_brokers", lambda arena: arena.cluster)
    monkeypatch.setattr(freshness, "SEEN_SECONDS_MAX", 0.05)
    monkeypatch.setattr(freshness, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(Freshness, "_knows", lambda self, endpoint, value: parts.known >= value)
    return parts


async def until_violated(parts: Parts, seconds: float) -> list[str]:
    running = asyncio.create_task(parts.freshness.run())
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not parts.freshness.violations:
                await asyncio.sleep(0.001)
    running.cancel()
    return parts.freshness.violations


async def test_a_broker_that_never_learns_of_a_change_is_a_violation(parts: Parts) -> None:
    (story,) = await until_violated(parts, 10)
    assert "broker 101 did not know of a change of metadata" in story


async def test_one_that_learns_of_it_is_none(parts: Parts) -> None:
    parts.known = 1 << 40
    assert await until_violated(parts, 0.3) == []
    assert parts.freshness.changes >= 1


@pytest.mark.parametrize("why", ["is cut off from a node", "is paused", "does not run", "no majority"])
async def test_one_that_cannot_learn_of_it_is_none(parts: Parts, why: str) -> None:
    truth = parts.arena.truth
    match why:
        case "is cut off from a node":
            truth.cuts.add((VOTERS[0], BROKER))
        case "is paused":
            truth.paused.add(BROKER)
        case "does not run":
            truth.running.discard(BROKER)
        case _:
            truth.full |= set(VOTERS[1:])
    assert await until_violated(parts, 0.3) == []
