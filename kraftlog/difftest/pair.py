"""The two systems as processes: started when needed, and restarted if they cannot be cleared for the next sequence."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from kraftbase.errors import KraftlogError
from kraftlog.bench.peers.installed import Kafka
from kraftlog.difftest.kafka_system import KafkaSystem
from kraftlog.difftest.own_system import OwnSystem
from kraftlog.difftest.session import Outcome, Session
from kraftlog.difftest.steps import Step

ATTEMPTS: Final = 3
"""How often a sequence is run if it is disturbed."""


class Pair:
    """Both systems. Use it as `async with Pair(...) as pair`, which stops them at the end."""

    def __init__(self, kafka: Kafka, directory: Path | None) -> None:
        self._kafka = kafka
        self._directory = directory
        self._stack = AsyncExitStack()
        self._session: Session | None = None
        self.starts = 0
        self.disturbances = 0

    async def __aenter__(self) -> Pair:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop()

    async def run(self, sequence: Sequence[Step]) -> Outcome:
        """Run a sequence on two empty systems. Raises the error of the last of three attempts."""
        attempt = 1
        while True:
            try:
                session = await self._started()
                outcome = await session.run(list(sequence))
            except KraftlogError:
                self.disturbances += 1
                await self._stop()
                if attempt == ATTEMPTS:
                    raise
                attempt += 1
            else:
                if not await _is_cleared(session):
                    await self._stop()
                return outcome

    async def _started(self) -> Session:
        if self._session is None:
            self.starts += 1
            directory = tempfile.TemporaryDirectory(prefix="kraftlog-difftest-", dir=self._directory)
            name = self._stack.enter_context(directory)
            kafka = await self._stack.enter_async_context(KafkaSystem.running(self._kafka, Path(name)))
            own = await self._stack.enter_async_context(OwnSystem.running(Path(name)))
            self._session = Session(kafka, own)
            await self._session.prepare()
        return self._session

    async def _stop(self) -> None:
        stack, self._stack, self._session = self._stack, AsyncExitStack(), None
        await stack.aclose()


async def _is_cleared(session: Session) -> bool:
    """Clear both systems; return whether both are empty again. A system that does not answer is not."""
    try:
        return await session.clear()
    except KraftlogError:
        return False
