"""The logs of this project's processes: lines of key=value on standard error.

The reader of standard error may hang or exit, and its disk may be full. None of this may affect a node: a separate
thread writes the lines from a bounded queue, and lines that cannot be written are dropped and counted.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import sys
import threading
from collections.abc import Callable
from typing import Any, Final, NoReturn, TextIO

import structlog

WAITING_LINES_MAX: Final = 2_000
"""How many lines may wait to be written; further lines are dropped."""

FLUSH_SECONDS: Final = 1.0
"""How long a process waits at its end for lines that are not written yet."""

_timestamp: Final = structlog.processors.TimeStamper(fmt="iso", utc=True)
_render: Final = structlog.processors.KeyValueRenderer(key_order=["timestamp", "level", "event"], drop_missing=True)


def configure_logging(level: str) -> None:
    """Log at `level` (debug, info, warning, error or critical) and above.

    Warnings and errors of the standard library's loggers, such as asyncio's and gRPC's, are written the same way. At
    its end the process waits a second for lines that are not written yet, and so does `logging.shutdown`.
    """
    lines = BackgroundLines(_writer_to(sys.stderr))
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            _timestamp,
            structlog.processors.format_exc_info,
            _render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=lambda *_: lines,
    )
    logging.lastResort = _LastResort(lines)


def silence_logging() -> None:
    """Log nothing: thousands of simulated nodes would log errors that the simulation injected."""
    structlog.configure(processors=[_drop])


def _drop(logger: object, name: str, event: object) -> NoReturn:
    raise structlog.DropEvent


def flush_logging() -> None:
    """Wait until all logged lines are written, for at most a second."""
    if logging.lastResort is not None:
        logging.lastResort.flush()


class BackgroundLines:
    """A logger of finished lines for structlog. It never waits and never raises: see the module."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        """`write` is called in a thread, with whole lines; it may block for ever, and raise OSError or ValueError."""
        self._write = write
        # Unlike with `queue.Queue`, code that interrupts a put may put, too, such as a destructor that logs.
        self._waiting: queue.SimpleQueue[bytes | threading.Event] = queue.SimpleQueue()
        self._lock = threading.RLock()
        self._left_out = 0
        self._thread: threading.Thread | None = None

    def msg(self, line: str) -> None:
        """Have one line written as soon as possible."""
        if self._waiting.qsize() >= WAITING_LINES_MAX or not self._is_started():
            self._leave_out(1)
        else:
            self._waiting.put(f"{line}\n".encode(errors="backslashreplace"))

    log = debug = info = warn = warning = fatal = failure = err = error = critical = exception = msg

    def flush(self, timeout_seconds: float) -> None:
        """Wait until all lines logged so far are written, for at most this long."""
        if self._thread is not None:
            written = threading.Event()
            self._waiting.put(written)
            written.wait(timeout_seconds)

    def _is_started(self) -> bool:
        """Start the thread with the first line: most commands log nothing."""
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="kraftlog-log-lines", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # the system cannot start one, or the interpreter is shutting down
                    return False
                self._thread = thread
            return True

    def _run(self) -> None:
        while True:
            waiting = self._waiting.get()
            if isinstance(waiting, threading.Event):
                self._say_left_out()
                waiting.set()
            elif self._is_written(waiting):
                self._say_left_out()

    def _is_written(self, lines: bytes) -> bool:
        try:
            self._write(lines)
        except (OSError, ValueError):  # its reader has exited, its disk is full, or it is closed
            self._leave_out(1)
            return False
        return True

    def _say_left_out(self) -> None:
        """Log the number of dropped lines once the queue is empty: they were logged after all lines in it."""
        if self._waiting.qsize() > 0:
            return
        with self._lock:
            count, self._left_out = self._left_out, 0
        if count:
            event: dict[str, Any] = {"event": "log lines could not be written", "level": "warning", "count": count}
            line = f"{_render(None, '', _timestamp(None, '', event))}\n"
            try:
                self._write(line.encode())
            except (OSError, ValueError):
                self._leave_out(count)

    def _leave_out(self, count: int) -> None:
        with self._lock:
            self._left_out += count


class _LastResort(logging.Handler):
    """Handles warnings and errors of the standard library's loggers that no other handler handles."""

    def __init__(self, lines: BackgroundLines) -> None:
        super().__init__(logging.WARNING)
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        """Log a record in the format that it would have without this handler, but in the background."""
        with contextlib.suppress(Exception):  # arguments that do not fit the message must not end the caller
            self._lines.msg(self.format(record))

    def flush(self) -> None:
        """Called by `logging.shutdown`: at the end of the process, and before it exits at once."""
        self._lines.flush(FLUSH_SECONDS)


def _writer_to(stream: TextIO | None) -> Callable[[bytes], None]:
    """Return a function that writes whole lines to `stream`, or drops them if it is None: standard error was closed."""
    if stream is None:
        return lambda lines: None
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError, AttributeError):  # it is not a file, or it is closed

        def write_text(lines: bytes) -> None:
            stream.write(lines.decode())
            stream.flush()

        return write_text

    def write(lines: bytes) -> None:
        # Not through the stream's buffer: a thread that waits for a reader would hold its lock, and the process could
        # not end.
        rest = memoryview(lines)
        while rest:
            rest = rest[os.write(descriptor, rest) :]

    return write
