"""`kraftlog chaos`: faults on voters. `kraftlog chaos brokers`: faults on brokers, too. `damage`: damaged files of a
stopped broker. `soak` and `full-disks`: bounds of resources."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Final

from rich.console import Console

from kraftlog.chaos import storm
from kraftlog.chaos.brokers import command as brokers
from kraftlog.chaos.damage import command as damage
from kraftlog.chaos.session import FAILED, DirectoryNotEmpty
from kraftlog.chaos.soak import command as soak
from kraftlog.chaos.soak import full_disks_command as full_disks

COMMANDS: Final[dict[str, Callable[[Sequence[str], Console], int]]] = {
    "brokers": brokers.main,
    "damage": damage.main,
    "soak": soak.main,
    "full-disks": full_disks.main,
}


def main(words: Sequence[str]) -> int:
    """Carry out the command that the first word names; without such a word, `storm`."""
    console = Console() if sys.stdout.isatty() else Console(width=120)
    command = COMMANDS.get(words[0]) if words else None
    try:
        return storm.main(words, console) if command is None else command(words[1:], console)
    except DirectoryNotEmpty as error:
        console.print(f"error: {error}", markup=False)
        return FAILED
