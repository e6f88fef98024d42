"""Takes a snapshot of a store in a process of its own, so that the node's event loop shares no interpreter with it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from subprocess import Popen

from kraftbase.errors import StorageError
from raft.shell.runtime import Runtime
from snapshot.names import PART_SUFFIX, SUFFIX
from statemachine.store.background import last_line, start_module
from statemachine.store.private_copy import DIRECTORY_VARIABLE
from statemachine.store.scrub import ROTTEN_EXIT_CODE, RottenDatabase
from statemachine.store.snapshot_generator import OnTaken
from statemachine.store.snapshot_worker import decode_taken


class SnapshotProcess:
    """Takes snapshots of the database at `database` (`statemachine.store.snapshot_generator.TakeSnapshot`)."""

    def __init__(self, database: Path, directory: str, runtime: Runtime) -> None:
        """`directory` is the node's snapshot store's; `runtime` has threads that wait for the process."""
        self._database = database
        self._directory = directory
        self._runtime = runtime

    def __call__(self, on_taken: OnTaken) -> _Running:
        """Begin to take one. `on_taken` gets it, or StorageError; RottenDatabase if the database is not what was
        applied."""
        token = token_hex(8)
        process = start_module(
            "statemachine.store.snapshot_worker",
            (str(self._database), self._directory, token),
            {DIRECTORY_VARIABLE: str(self._database.absolute().parent)},
        )
        said: list[bytes] = []

        def ended(error: BaseException | None) -> None:
            if error is None and process.returncode == 0:
                on_taken(decode_taken(said[0]), None)
                return
            self._remove_part(token)
            reason = last_line(said[1]) if error is None else str(error)
            reason = reason or f"its process ended with {process.returncode}"
            kind = RottenDatabase if process.returncode == ROTTEN_EXIT_CODE else StorageError
            on_taken(None, kind(reason))

        self._runtime.run_aside(lambda: said.extend(process.communicate()), ended)
        return _Running(process)

    def _remove_part(self, token: str) -> None:
        """A process that was killed leaves its part of a file, again with each attempt."""
        for part in Path(self._directory).glob(f"*-{token}{SUFFIX}{PART_SUFFIX}"):
            with suppress(OSError):  # the next start removes it
                part.unlink()


class _Running:
    """A process that takes a snapshot."""

    def __init__(self, process: Popen[bytes]) -> None:
        self._process = process

    def cancel(self) -> None:
        """Kill it; its end is reported as any other."""
        self._process.kill()
