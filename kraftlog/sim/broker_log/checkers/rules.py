"""The rules of a broker's log, with their numbers in docs/faults/invariants.md."""

from __future__ import annotations

from typing import Final

ACKNOWLEDGED: Final = "acknowledged records are in the log (81)"
OFFSETS: Final = "no offset is used for another batch (82)"
INDEXES: Final = "indexes agree with the log (83)"
ONCE: Final = "a batch of an idempotent producer is stored once (84)"
START: Final = "the log start never goes back (85)"
READ: Final = "records that a reader got are not lost (86)"
KEPT: Final = "nothing is deleted early (87)"
SOUND: Final = "no crash leaves damage (88)"
GOES_ON: Final = "a broker keeps running (89)"
DECIDED: Final = "readers of committed records get only decided transactions (90)"
ANSWERS: Final = "a client gets the responses to its requests, in order (109)"
AS_IT_WAS: Final = "a log whose files were damaged is unchanged or offline (104)"

RULES: Final = (ACKNOWLEDGED, OFFSETS, INDEXES, ONCE, START, READ, KEPT, SOUND, GOES_ON, DECIDED, AS_IT_WAS, ANSWERS)
NUMBERS: Final = (*range(81, 91), 104, 109)
