"""Takes a snapshot of a store in a process of its own, so that the node's event loop shares no interpreter with it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from subprocess import Popen

from kraftbase.errors import StorageError
from kraftbase.runtime import Runtime
from snapshot.names import PART_SUFFIX, SUFFIX
from statemachine.store.background import last_line, start_module
from statemachine.store.private_copy import DIRECTORY_VARIABLE
from statemachine.store.scrub import CORRUPT_EXIT_CODE, CorruptDatabase
from statemachine.store.snapshot_generator import OnTaken
from statemachine.store.snapshot_worker import TakenSnapshot, decode_taken


class SnapshotProcess:
    """Takes snapshots of the database at `database` (`statemachine.store.snapshot_generator.TakeSnapshot`)."""

    def __init__(self, database: Path, directory: str, runtime: Runtime) -> None:
        """`directory` is the node's snapshot store's; `runtime` has threads that wait for the process."""
        self._database = database
        self._directory = directory
        self._runtime = runtime

    def __call__(self, on_taken: OnTaken) -> _Running:
        """Begin to take one. `on_taken` gets it, or StorageError; CorruptDatabase if the database is not what was
        applied.
        """
        token = token_hex(8)
        try:
            process = self._started(token)
        except OSError as error:
            reason = StorageError(f"its process cannot be started: {error.strerror}")
            self._runtime.call_soon(lambda: on_taken(None, reason))
            return _Running(None)
        taken: list[TakenSnapshot] = []

        def ended(error: BaseException | None) -> None:
            if error is not None:
                self._remove_part(token)
            on_taken(taken[0] if taken else None, error)

        self._runtime.run_aside(lambda: taken.append(_taken_by(process)), ended)
        return _Running(process)

    def _started(self, token: str) -> Popen[bytes]:
        return start_module(
            "statemachine.store.snapshot_worker",
            (str(self._database), self._directory, token),
            {DIRECTORY_VARIABLE: str(self._database.absolute().parent)},
        )

    def _remove_part(self, token: str) -> None:
        """Remove the part of a file that a killed process leaves at each attempt."""
        for part in Path(self._directory).glob(f"*-{token}{SUFFIX}{PART_SUFFIX}"):
            with suppress(OSError):  # the next start removes it
                part.unlink()


class _Running:
    """A process that takes a snapshot; None: it did not start."""

    def __init__(self, process: Popen[bytes] | None) -> None:
        self._process = process

    def cancel(self) -> None:
        """Kill it; its end is reported as any other."""
        if self._process is not None:
            self._process.kill()


def _taken_by(process: Popen[bytes]) -> TakenSnapshot:
    """The snapshot that the ended process has taken. Raises CorruptDatabase and StorageError."""
    said, error_output = process.communicate()
    if process.returncode == 0:
        return decode_taken(said)
    reason = last_line(error_output) or f"its process ended with {process.returncode}"
    raise CorruptDatabase(reason) if process.returncode == CORRUPT_EXIT_CODE else StorageError(reason)
