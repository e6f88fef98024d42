"""The leaderships of one process, as a listener of its partitions hears of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kraftlog.sim.engine.violation import Violation
from kraftlog.sim.replication.judges.rules import HEARD

Key = tuple[bytes, int]
"""The topic's id, and the partition's number."""
NONE_YET: Final = -1


class HeardLeaderships:
    """See the module. A false alarm would be a partition that is made again with the id that it had."""

    def __init__(self, name: str) -> None:
        """`name` is the broker's."""
        self._name = name
        self._led: dict[Key, int] = {}
        """The epochs that have begun, and not ended."""
        self._ended: dict[Key, int] = {}
        """The last epochs that have ended."""
        self.checks = 0

    def begins(self, key: Key, epoch: int) -> None:
        """The listener is told that the broker leads. Raises Violation."""
        self.checks += 1
        if key in self._led:
            raise self._wrong(key, f"begins epoch {epoch} before the end of epoch {self._led[key]}")
        if epoch < self._ended.get(key, NONE_YET):
            raise self._wrong(key, f"begins epoch {epoch} after epoch {self._ended[key]}")
        self._led[key] = epoch

    def ends(self, key: Key, epoch: int) -> None:
        """It is told that the broker leads no more. Raises Violation."""
        self.checks += 1
        begun = self._led.pop(key, NONE_YET)
        if begun != epoch:
            raise self._wrong(key, f"ends epoch {epoch}, and led {'in none' if begun == NONE_YET else f'in {begun}'}")
        self._ended[key] = epoch

    def acknowledges(self, key: Key, epoch: int) -> None:
        """The broker acknowledges a batch as the leader of that epoch. Raises Violation."""
        self.checks += 1
        if self._led.get(key) != epoch:
            raise self._wrong(key, f"acknowledges in epoch {epoch}, and {self._told(key)}")

    def leads(self, leading: Mapping[Key, int]) -> None:
        """Between two steps the broker leads these partitions, in these epochs. Raises Violation."""
        self.checks += 1
        if leading != self._led:
            key = min(key for key in {*leading, *self._led} if leading.get(key) != self._led.get(key))
            raise self._wrong(key, f"leads in {leading.get(key, 'none')}, and {self._told(key)}")

    def is_over(self) -> None:
        """The broker has ended in order. Raises Violation."""
        self.leads({})

    def _told(self, key: Key) -> str:
        return f"the listener was told of {self._led.get(key, 'none')}"

    def _wrong(self, key: Key, what: str) -> Violation:
        return Violation(f"{HEARD}: broker {self._name}, partition {key[1]} of topic {key[0].hex()}: {what}")
