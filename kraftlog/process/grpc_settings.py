"""What gRPC reads from the environment, once, when it is imported."""

from __future__ import annotations

import os
from typing import Final

GRPC_SETTINGS: Final = {
    "GRPC_VERBOSITY": "NONE",
    "GRPC_EXPERIMENTS": "-event_engine_client,-event_engine_listener",
}
"""For this process, and those that it starts. What the user has set stays.

Otherwise gRPC writes lines of its own between ours, such as one about a port in use before our error says so. Its event
engine hands each message from thread to thread: without it an echo takes a quarter less processor time.
"""

set_here: Final[list[str]] = []
"""The variables that this process has set, for processes that must not inherit them."""


def set_grpc() -> None:
    """Set what the user has not set. To be called before grpc is imported."""
    for name, value in GRPC_SETTINGS.items():
        if name not in os.environ:
            os.environ[name] = value
            set_here.append(name)
