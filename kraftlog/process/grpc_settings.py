"""The environment variables that gRPC reads once, when it is imported."""

from __future__ import annotations

import os
from typing import Final

GRPC_SETTINGS: Final = {
    "GRPC_VERBOSITY": "NONE",
    "GRPC_EXPERIMENTS": "-event_engine_client,-event_engine_listener",
}
"""Set for this process and for the processes that it starts. A variable that the user has set stays.

Otherwise gRPC writes lines of its own between ours, such as one about a port in use before our error says so. Its event
engine hands each message from thread to thread: without it an echo takes a quarter less processor time.
"""

set_here: Final[list[str]] = []
"""The variables that this process has set. A process that must not inherit them is started without them."""


def set_grpc() -> None:
    """Set the variables that the user has not set. Call it before grpc is imported."""
    for name, value in GRPC_SETTINGS.items():
        if name not in os.environ:
            os.environ[name] = value
            set_here.append(name)
