"""The leaderships of one process, as they are reported to a listener of its partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kraftlog.sim.engine.violation import Violation
from kraftlog.sim.replication.checkers.rules import HEARD

Key = tuple[bytes, int]
"""The topic's id, and the partition's number."""
NONE_YET: Final = -1


class HeardLeaderships:
    """The reported leaderships of a process.

    A partition that is created again with the same id would be a false positive.
    """

    def __init__(self, name: str) -> None:
        """`name`: the broker's name in messages."""
        self._name = name
        self._led: dict[Key, int] = {}
        """The epochs that have begun and not ended."""
        self._ended: dict[Key, int] = {}
        """The last epochs that have ended."""
        self.checks = 0

    def begins(self, key: Key, epoch: int) -> None:
        """Handle the report that the broker begins to lead. Raises Violation."""
        self.checks += 1
        if key in self._led:
            raise self._wrong(key, f"begins epoch {epoch} before the end of epoch {self._led[key]}")
        if epoch < self._ended.get(key, NONE_YET):
            raise self._wrong(key, f"begins epoch {epoch} after epoch {self._ended[key]}")
        self._led[key] = epoch

    def ends(self, key: Key, epoch: int) -> None:
        """Handle the report that the broker no longer leads. Raises Violation."""
        self.checks += 1
        begun = self._led.pop(key, NONE_YET)
        if begun != epoch:
            raise self._wrong(key, f"ends epoch {epoch}, but led {'in none' if begun == NONE_YET else f'in {begun}'}")
        self._ended[key] = epoch

    def acknowledges(self, key: Key, epoch: int) -> None:
        """Check an acknowledgment: the broker must have been reported to lead in its epoch. Raises Violation."""
        self.checks += 1
        if self._led.get(key) != epoch:
            raise self._wrong(key, f"acknowledges in epoch {epoch}, but {self._story(key)}")

    def leads(self, leading: Mapping[Key, int]) -> None:
        """Check the leaderships between two steps: exactly these have been reported. Raises Violation."""
        self.checks += 1
        if leading != self._led:
            key = min(key for key in {*leading, *self._led} if leading.get(key) != self._led.get(key))
            raise self._wrong(key, f"leads in {leading.get(key, 'none')}, but {self._story(key)}")

    def is_over(self) -> None:
        """Check that no leadership is left after a shutdown. Raises Violation."""
        self.leads({})

    def _story(self, key: Key) -> str:
        return f"the reported epoch is {self._led.get(key, 'none')}"

    def _wrong(self, key: Key, what: str) -> Violation:
        return Violation(f"{HEARD}: broker {self._name}, partition {key[1]} of topic {key[0].hex()}: {what}")
