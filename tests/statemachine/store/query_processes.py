"""The processes that run a node's SQL statements, as the system shows them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until it holds; the test's time limit ends it."""
    while not condition():
        threading.Event().wait(0.01)


def children_of(process_id: int) -> list[int]:
    """The children that it has forked and that have not ended."""
    return [int(word) for word in Path(f"/proc/{process_id}/task/{process_id}/children").read_text().split()]


def is_there(process_id: int) -> bool:
    """Whether it runs: a process that has ended may still be listed."""
    try:
        fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return False
    return fields[0] != "Z"
