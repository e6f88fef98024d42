"""A lane injects one fault after the other. Lanes run side by side, so that faults overlap."""

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
    """The kinds of faults of a lane, and the length of the pauses between them."""

    name: str
    kinds: Sequence[Kind]
    rest_seconds: tuple[float, float]

    async def run(
        self, arena: Arena, random: Random, is_over: Callable[[], bool], under_way: MutableMapping[str, str]
    ) -> None:
        """Inject faults until `is_over`, and each kind at least once.

        `under_way` has the current fault of each lane, by the lane's name.
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
