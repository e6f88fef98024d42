"""The advice in errors about files of a node that are lost, damaged, or of different times.

An operator follows it literally, with the other voters in any state: up, down, or behind. So the advice never gives up
the only copy of anything, never restores data older than what was acknowledged, and no voter that has lost what it
acknowledged may vote or count again. `tests/kraftlog/offline/test_advice.py` follows it.
"""

from __future__ import annotations

from typing import Final

REPLACE_THE_DISK: Final = (
    "Delete nothing, and bring no older copy back: it would not hold what was acknowledged since. If the directory as"
    " it was when the node last ran cannot be had, move this one aside and put a new one in its place with"
    " `kraftlog format --replace`: it neither votes nor counts until the other voters have given it everything that is"
    " committed"
)
"""For a node that cannot start from its directory, whether or not there are other voters."""

NOBODY_TO_FETCH_FROM: Final = (
    "Nothing of the log was changed. There is no other voter to fetch it from. Delete nothing, and bring no older copy"
    " back in its place: it would not hold what was acknowledged since. Make a copy of the directory as it is, let"
    " `kraftlog verify` say what of it is whole, and bring its files back as they were when the node last ran"
)
"""For a sole voter."""
