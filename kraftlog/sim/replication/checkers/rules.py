"""The rules of replication, with their numbers in docs/faults/invariants.md.

The first four are the guarantees of KAFKA-4485, in its order.
"""

from __future__ import annotations

from typing import Final

CATCHES_UP: Final = "a caught-up replica holds the high watermark back, and joins the ISR when it has reached it (91)"
LEAVES: Final = "a replica that lags leaves the ISR within one check, and no other replica does (92)"
WATERMARK: Final = "the high watermark never goes back in a leader epoch (93)"
MEMBERS: Final = "every member of the ISR has what is below the high watermark (94)"
KEPT: Final = "records acknowledged with acks=all are not lost (95)"
READ: Final = "records that a consumer has read are not truncated (96)"
AGREE: Final = "logs agree where they are committed, and within each epoch (97)"
MAXIMAL: Final = "the leader waits for every replica in the controller's ISR (98)"
ONE_LEADER: Final = "one broker leads a partition in an epoch (99)"
ENOUGH: Final = "the high watermark does not move while too few replicas are in sync (100)"
CUT: Final = "no replica truncates below its high watermark, except after an unclean election or lost power (101)"
ONCE: Final = "a batch of an idempotent producer is stored once (102)"
PEACE: Final = "after the faults every replica is in the ISR again, and the logs are equal (103)"
TRUSTED: Final = "a broker names a clean shutdown only if each of its log directories had one (105)"
TELLS: Final = "a broker reports its log directories correctly, and its epoch is in all of them (106)"
BEGINS: Final = "a broker serves, and is unfenced, only after it has applied its own registration (107)"
ENDS: Final = "a broker ends when others lead its partitions or its time is up, and closes its logs last (108)"
HEARD: Final = "a listener learns of each leadership before its first acknowledgment, and of its end (110)"

RULES: Final = (
    CATCHES_UP, LEAVES, WATERMARK, MEMBERS, KEPT, READ, AGREE, MAXIMAL, ONE_LEADER, ENOUGH, CUT, ONCE, PEACE,
    TRUSTED, TELLS, BEGINS, ENDS, HEARD,
)  # fmt: skip
NUMBERS: Final = (*range(91, 104), *range(105, 109), 110)
