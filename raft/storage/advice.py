"""The advice in errors about files of a node that are lost, damaged, or from different times.

An operator follows it literally, with the other voters in any state: up, down, or behind. So the advice never discards
the only copy of anything, never restores data older than what was acknowledged, and lets no voter that has lost what it
acknowledged vote or count again. `tests/kraftlog/offline/test_advice.py` follows it.
"""

from __future__ import annotations

from typing import Final

REPLACE_THE_DISK: Final = (
    "Delete nothing, and restore no older copy: it would lack what was acknowledged since. If you do not have the"
    " directory as it was when the node last ran, move this one aside and put a new one in its place with"
    " `kraftlog format --replace`: it neither votes nor counts until it has everything committed from the other voters"
)
"""For a node that cannot start from its directory, with or without other voters."""

NOBODY_TO_FETCH_FROM: Final = (
    "Nothing of the log was changed. There is no other voter to fetch it from. Delete nothing, and restore no older"
    " copy in its place: it would lack what was acknowledged since. Make a copy of the directory as it is, run"
    " `kraftlog verify` to see which parts are whole, and restore its files as they were when the node last ran"
)
"""For a sole voter."""
