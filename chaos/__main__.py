"""`python -m chaos --minutes 10 --seed 1 --json FILE`: exit code 0 if nothing was violated, 1 if something was."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console

from chaos import storm
from chaos.session import FAILED, DirectoryNotEmpty


def main(words: Sequence[str]) -> int:
    """Carry out the command."""
    console = Console() if sys.stdout.isatty() else Console(width=120)
    try:
        return storm.main(words, console)
    except DirectoryNotEmpty as error:
        console.print(f"error: {error}", markup=False)
        return FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
