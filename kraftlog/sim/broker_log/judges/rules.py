"""What must hold of a broker's log, with the numbers under which docs/faults/invariants.md has it."""

from __future__ import annotations

from typing import Final

ACKNOWLEDGED: Final = "acknowledged records are there (81)"
OFFSETS: Final = "no offset is used for another batch (82)"
INDEXES: Final = "indexes agree with the log (83)"
ONCE: Final = "a batch of an idempotent producer is stored once (84)"
START: Final = "the log's start never goes back (85)"
READ: Final = "what a reader saw is not lost (86)"
KEPT: Final = "nothing is deleted early (87)"
SOUND: Final = "no crash leaves damage (88)"
GOES_ON: Final = "a broker goes on (89)"
DECIDED: Final = "who reads committed records gets what is decided (90)"
ANSWERS: Final = "a client gets the answers to its requests, in their order (109)"
AS_IT_WAS: Final = "a log is as it was before its files were damaged, or offline (104)"

RULES: Final = (ACKNOWLEDGED, OFFSETS, INDEXES, ONCE, START, READ, KEPT, SOUND, GOES_ON, DECIDED, AS_IT_WAS, ANSWERS)
NUMBERS: Final = (*range(81, 91), 104, 109)
