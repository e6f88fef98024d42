"""How a figure is measured in pairs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from kraftlog.bench.broker.comparison import Figures
from kraftlog.bench.broker.system import System


class Experiment(ABC):
    """What is prepared at each system, done in each pair, and cleaned up, while the brokers run all the time."""

    is_warmed_up: ClassVar = True
    """Whether each system carries it out once before it counts: then the JVM has compiled what runs often."""

    def __init__(self, name: str, pairs: int) -> None:
        """`name` is the figure's, `pairs` how often it is counted."""
        self.name = name
        self.pairs = pairs

    async def prepare(self, system: System) -> None:
        """Before the first pair: nothing, unless a subclass does."""
        return

    @abstractmethod
    async def measure(self, system: System) -> Figures:
        """Once. Raises ApiError."""

    async def clean_up(self, system: System) -> None:
        """After the last pair: nothing, unless a subclass does."""
        return

    def of_load(self, system: System) -> dict[str, Any]:
        """The arguments of every load."""
        return {"bootstrap_servers": system.bootstrap_servers, "topic": self.name, "broker_pids": system.pids}
