"""What must hold of replication, with the numbers under which docs/faults/invariants.md has it.

The first four are the guarantees of KAFKA-4485, in its order.
"""

from __future__ import annotations

from typing import Final

CATCHES_UP: Final = "a replica that is caught up holds the high watermark, and joins the ISR when it has it (91)"
LEAVES: Final = "a replica that lags leaves the ISR within one check, and no other one does (92)"
WATERMARK: Final = "the high watermark never goes back in a leader epoch (93)"
MEMBERS: Final = "every member of the ISR has what is below the high watermark (94)"
KEPT: Final = "what was acknowledged with acks=all is not lost (95)"
READ: Final = "what a consumer has read is not cut (96)"
AGREE: Final = "logs agree where they are committed, and within each epoch (97)"
MAXIMAL: Final = "whom the controller has in the ISR, the leader waits for (98)"
ONE_LEADER: Final = "one broker leads a partition in an epoch (99)"
ENOUGH: Final = "nothing is committed while too few replicas are in sync (100)"
CUT: Final = "no replica cuts below its high watermark, but for an unclean leader (101)"
ONCE: Final = "a batch of an idempotent producer is stored once (102)"
PEACE: Final = "in peace every replica is in the ISR again, and the logs are the same (103)"
TRUSTED: Final = "a broker names a clean shutdown only if each of its log directories was left so (105)"
TELLS: Final = "what a broker tells of its log directories is so, and its epoch is in all of them (106)"
BEGINS: Final = "a broker serves, and is unfenced, when it has applied its own registration (107)"
ENDS: Final = "a broker ends when others lead its partitions, or its time is up, and its logs are closed last (108)"
HEARD: Final = "a listener hears of each leadership, from before its first acknowledgment to its end (110)"

RULES: Final = (
    CATCHES_UP, LEAVES, WATERMARK, MEMBERS, KEPT, READ, AGREE, MAXIMAL, ONE_LEADER, ENOUGH, CUT, ONCE, PEACE,
    TRUSTED, TELLS, BEGINS, ENDS, HEARD,
)  # fmt: skip
NUMBERS: Final = (*range(91, 104), *range(105, 109), 110)
