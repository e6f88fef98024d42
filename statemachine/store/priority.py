"""How much a process of a node yields to the node itself."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

BACKGROUND_NICENESS: Final = 10
"""For background work: beside one busy process on the same processor, it has a tenth of the time."""

STATEMENT_NICENESS: Final = 5
"""For a client's SQL statement, for which a client waits some seconds: a quarter, and the node the rest."""


def stand_back(process_id: int, niceness: int) -> None:
    """Lower the priority of this process, which has the node's priority now, as far as the system allows."""
    with suppress(ProcessLookupError):  # the process has ended already
        present = os.getpriority(os.PRIO_PROCESS, process_id)
        os.setpriority(os.PRIO_PROCESS, process_id, present + niceness)
    # Where Linux shares processors out to sessions, a process's own niceness counts only within its session.
    with suppress(OSError):
        Path(f"/proc/{process_id}/autogroup").write_text(str(niceness), encoding="ascii")
