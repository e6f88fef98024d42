"""How a figure is measured in pairs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from kraftlog.bench.broker.comparison import Figures
from kraftlog.bench.broker.system import System


class Experiment(ABC):
    """Prepares each system, measures it in each pair, and cleans up, while the brokers run all the time."""

    is_warmed_up: ClassVar = True
    """Whether each system is measured once uncounted before: then the JVM has compiled the hot code."""

    def __init__(self, name: str, pairs: int) -> None:
        """`name` is the figure's name, `pairs` the number of counted measurements."""
        self.name = name
        self.pairs = pairs

    async def prepare(self, system: System) -> None:
        """Prepare a system before the first pair. Does nothing, unless a subclass does."""
        return

    @abstractmethod
    async def measure(self, system: System) -> Figures:
        """Measure a system once. Raises ApiError."""

    async def clean_up(self, system: System) -> None:
        """Clean up after the last pair. Does nothing, unless a subclass does."""
        return

    def of_load(self, system: System) -> dict[str, Any]:
        """Return the arguments that every load has."""
        return {"bootstrap_servers": system.bootstrap_servers, "topic": self.name, "broker_pids": system.pids}
