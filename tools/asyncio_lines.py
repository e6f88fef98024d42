"""Counts the code of data brokers that needs an event loop, so that the simulator cannot run it: `make check`.

It counts the lines of modules that import asyncio in the packages below. Not counted are adapters, which put a
synchronous part on an event loop, and modules that handle sockets. Exits with 1 above `LINES_MAX` lines.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
ROOMS: Final = ("broker", "network", "replicas", "storage")
LINES_MAX: Final = 400

LEFT_OUT: Final = {
    "broker/awaited_answers.py": "awaits work that ports of the shell begin",
    "broker/broker.py": "hosts the shell",
    "broker/broker_network.py": "the shell's port to clients",
    "broker/controller_link.py": "the shell's port to the controller",
    "broker/followed_metadata.py": "the shell's port to the metadata",
    "broker/running.py": "puts the shell on an event loop",
    "network/connection.py": "handles a socket",
    "network/connections.py": "handles sockets",
    "network/listening.py": "binds sockets",
    "network/reading.py": "reads from sockets",
    "network/serving.py": "accepts connections",
    "network/unread.py": "asks a socket for its unread bytes",
    "replicas/leader_connection.py": "handles a socket",
}
IMPORT: Final = re.compile(r"^\s*(import asyncio|from asyncio)\b", re.MULTILINE)


def main() -> int:
    """Print the modules and their lines."""
    package = ROOT / "kraftlog"
    lines = {}
    for path in sorted(path for room in ROOMS for path in (package / room).rglob("*.py")):
        name, text = str(path.relative_to(package)), path.read_text()
        if IMPORT.search(text) and name not in LEFT_OUT:
            lines[name] = len(text.splitlines())
    count = sum(lines.values())
    print(f"asyncio outside of adapters and sockets: {count} lines, at most {LINES_MAX}")
    for name, of_module in lines.items():
        print(f"  {of_module:4} {name}")
    missing = [name for name in LEFT_OUT if not (package / name).is_file()]
    if missing:
        print(f"{', '.join(missing)} does not exist: remove it from the list in tools/{Path(__file__).name}")
    return 1 if missing or count > LINES_MAX else 0


if __name__ == "__main__":
    sys.exit(main())
