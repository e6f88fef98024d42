"""Run as a script by a shell, as `kraftlog`: has the process of the tests start the command. See tests/shells.py.

It imports little: it stands for what starts in the same time.
"""

import json
import os
import signal
import socket
import sys


def main() -> None:
    """End as the command does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asked:
        asked.connect(os.environ["KRAFTLOG_IN_SHELLS"])
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, frame: asked.send(b"%d" % number) and None)
        directory = os.getcwd()  # noqa: PTH109
        request = {"arguments": sys.argv[1:], "directory": directory, "environment": dict(os.environ)}
        socket.send_fds(asked, [json.dumps(request).encode()], [0, 1, 2])
        code = int(asked.recv(32))
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    main()
