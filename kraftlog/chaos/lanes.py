"""Faults one after the other in a lane; lanes run side by side, so that what they break overlaps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from random import Random

from kraftlog.chaos.arena import Arena
from kraftlog.chaos.nemesis import Nemesis
from kraftlog.chaos.schedule import Kind, schedule


@dataclass(frozen=True, slots=True)
class Lane:
    """Which faults follow each other, and how long the pauses between them are."""

    name: str
    kinds: Sequence[Kind]
    rest_seconds: tuple[float, float]

    async def run(
        self, arena: Arena, random: Random, is_over: Callable[[], bool], under_way: MutableMapping[str, str]
    ) -> None:
        """Fault after fault until `is_over`, and each kind at least once.

        `under_way` has the fault of each lane at the moment, by the lane's name.
        """
        if not self.kinds:
            return
        for number, episode in enumerate(schedule(random, self.kinds, self.rest_seconds)):
            if number >= len(self.kinds) and is_over():
                break
            fault: Nemesis = episode.make()
            under_way[self.name] = fault.name
            arena.note(f"{self.name}: {fault.name} for {episode.hold_seconds:.2f} s")
            try:
                await fault.start(arena)
                await asyncio.sleep(episode.hold_seconds)
            finally:
                await fault.stop(arena)
            under_way.pop(self.name, None)
            await asyncio.sleep(episode.rest_seconds)
