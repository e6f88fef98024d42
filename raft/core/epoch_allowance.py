"""How many epochs peers may make this replica enter: a million at once, then a hundred a second (RF-114).

A replica enters the higher epoch of a peer (RF-15). Epochs end at 2^31-1, and are never lowered. Without TLS a process
that knows a voter's ids, which are public, may claim any epoch, and so may a voter whose memory is damaged. With this
bound it takes 248 days to use the epochs up, not 2,148 messages.

A correct cluster never notices it: its voters hold at most a few elections a second, so that a replica which is a
million epochs behind was away for more than a week of nothing but elections. Its epoch must be accepted even so, since
it cannot be distinguished from a replica that an attacker moved forward. So a larger jump is refused at first, and the
allowance grows with time.
"""

# Consider voters 1, 2 and 3 in epoch 5, and an attacker that speaks only to 1, for an hour. 1 goes to epoch 1,000,005
# at once, and then to 1,360,005. Each time 1 asks for votes, 2 and 3 enter its epoch, too, as they have the same
# allowance and use it up at the same times. If they were cut off from 1 for that hour, they are in epoch 5, may enter
# 1,000,000 epochs, and refuse 1 at first. They accept its epoch when their allowance has grown by 360,000, after an
# hour: no voter is refused for longer than it was away during an attack. Until then 2 and 3 elect and work without 1.

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

EPOCHS_AT_ONCE_MAX: Final = 1_000_000
EPOCHS_PER_SECOND: Final = 100
_MS_PER_EPOCH: Final = 1_000 // EPOCHS_PER_SECOND


@dataclass(slots=True, kw_only=True)
class EpochAllowance:
    """The allowance of one replica. It is full when the process starts: a restart is not caused by a peer."""

    counted_until_ms: int
    """The time up to which elapsed time has been added to the allowance."""
    epochs: int = EPOCHS_AT_ONCE_MAX
    is_short: bool = False
    """Whether a voter named an epoch beyond the allowance: only then it grows above EPOCHS_AT_ONCE_MAX."""

    def covers(self, epochs: int, now_ms: int) -> bool:
        """Whether a voter may move this replica forward by that many epochs now. A refused voter may succeed later."""
        self._grow(now_ms)
        self.is_short = self.is_short or epochs > self.epochs
        return epochs <= self.epochs

    def spend(self, epochs: int, now_ms: int) -> None:
        """Record that so many epochs were entered, for any reason; 0: another state in the same epoch."""
        if not epochs:
            return
        self._grow(now_ms)
        self.epochs = max(0, self.epochs - epochs)
        self.is_short = self.is_short and self.epochs > EPOCHS_AT_ONCE_MAX

    def _grow(self, now_ms: int) -> None:
        gained = (now_ms - self.counted_until_ms) // _MS_PER_EPOCH
        self.counted_until_ms += gained * _MS_PER_EPOCH
        self.epochs += gained
        if not self.is_short:
            self.epochs = min(self.epochs, EPOCHS_AT_ONCE_MAX)
