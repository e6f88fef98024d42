"""The lives of one broker: what its processes report at their start, what they do before they serve, how they end.

The checker knows how each log directory was left and what is on the disk. From the broker it uses only its requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from kraftbase.files.files import join
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.files.properties import decode_properties
from kraftbase.sentinels import UNKNOWN_EPOCH
from kraftlog.sim.engine.violation import Violation
from kraftlog.sim.replication.checkers.rules import BEGINS, ENDS, TELLS, TRUSTED
from kraftpb.v1.admin_pb2 import BrokerHeartbeatRequest, RegisterBrokerRequest

CLEAN_SHUTDOWN_NAME: Final = ".kafka_cleanshutdown"
"""A file in a log directory whose logs were closed."""
EPOCH_NAME: Final = "broker-epoch"
"""A file in every log directory: the broker epoch of the last registration with it."""


class Directory(NamedTuple):
    """A log directory of the process, between two steps."""

    path: str
    directory_id: bytes
    is_online: bool
    is_flushed: bool
    """Whether all of its logs are on disk up to their ends."""


class Lives:
    """The lives of one broker."""

    def __init__(self, name: str, shutdown_timeout_us: int) -> None:
        """`name`: the broker's name in messages; `shutdown_timeout_us`: the limit of its controlled shutdown."""
        self._name = name
        self._shutdown_timeout_us = shutdown_timeout_us
        self._clean: dict[str, int] = {}
        """By path: the epoch of the clean shutdown in which the log directory was last used."""
        self._paths: dict[bytes, str] = {}
        """By directory id: the path at which it was first seen."""
        self.checks = 0
        self.started()

    def started(self) -> None:
        """Begin the life of a process, which is about to open log directories."""
        self._found: dict[str, int] | None = None
        """How this process found its directories; None before it has opened them."""
        self._epoch = UNKNOWN_EPOCH
        """The epoch of this process's registration; UNKNOWN_EPOCH while it has none."""
        self._has_registered = False
        self._asked_us: int | None = None
        """When the process was asked to end."""
        self._may_end = False
        """Whether the controller has answered that others lead its partitions."""
        self._serves = False

    def opened(self, directories: Sequence[Directory]) -> None:
        """Record the directories that the process uses from now on."""
        self._found = {
            directory.path: self._clean.pop(directory.path)
            for directory in directories
            if directory.path in self._clean
        }

    def _wrong(self, rule: str, what: str) -> Violation:
        return Violation(f"{rule}: broker {self._name} {what}")

    # --- requests to the controller -----------------------------------------------------------------------------------

    def registers(
        self, request: RegisterBrokerRequest, directories: Sequence[Directory], files: MemoryFileSystem,
        *, is_one_missing: bool,
    ) -> None:  # fmt: skip
        """Check a registration. `is_one_missing`: a directory could not be opened. Raises Violation."""
        self.checks += 1
        path_of = {directory.directory_id: directory.path for directory in directories}
        for directory_id, path in path_of.items():
            if self._paths.setdefault(directory_id, path) != path:
                raise self._wrong(TELLS, f"has one id for the directories {self._paths[directory_id]} and {path}")
        named = dict(zip(request.log_dirs, request.log_dir_epochs, strict=False))
        for directory_id in request.log_dirs:
            noted = noted_epoch(files, path_of[directory_id])
            if named.get(directory_id) != noted:
                raise self._wrong(
                    TELLS, f"names epoch {named.get(directory_id)} for {path_of[directory_id]}, which has {noted}"
                )
        if request.HasField("previous_broker_epoch"):
            self._check_trust(request.previous_broker_epoch, [*path_of.values()], is_one_missing=is_one_missing)

    def _check_trust(self, epoch: int, paths: Sequence[str], *, is_one_missing: bool) -> None:
        found = self._found or {}
        unclean = [path for path in paths if path not in found]
        if self._has_registered:
            raise self._wrong(TRUSTED, f"names the clean shutdown of epoch {epoch}, but has registered since")
        if unclean or is_one_missing:
            raise self._wrong(
                TRUSTED, f"names the clean shutdown of epoch {epoch}, but not in {unclean or 'a missing directory'}"
            )
        if epoch != max(found.values()):
            raise self._wrong(TRUSTED, f"names the clean shutdown of epoch {epoch}, not of {max(found.values())}")

    def sends_heartbeat(
        self, request: BrokerHeartbeatRequest, directories: Sequence[Directory], files: MemoryFileSystem,
        applied_end_offset: int, *, may_be_full: bool,
    ) -> None:  # fmt: skip
        """Check a heartbeat. `may_be_full`: the disk may have been too full for its epoch. Raises Violation."""
        self.checks += 1
        for directory in directories:
            if not directory.is_online:
                if directory.directory_id not in request.offline_log_dirs:
                    raise self._wrong(TELLS, f"does not report that {directory.path} is lost")
                continue
            noted = noted_epoch(files, directory.path)
            if noted != request.broker_epoch and not (may_be_full and noted == UNKNOWN_EPOCH):
                raise self._wrong(
                    TELLS, f"sends a heartbeat of epoch {request.broker_epoch}, but {directory.path} has {noted}"
                )
        offset = request.current_metadata_offset
        if offset > (applied_end_offset if self._serves else 0):
            raise self._wrong(BEGINS, f"has applied the metadata up to {applied_end_offset}, but reports {offset}")

    # --- answers and requests to end ----------------------------------------------------------------------------------

    def registered(self, broker_epoch: int) -> None:
        """Record that the controller has registered the broker."""
        self._epoch = broker_epoch
        self._has_registered = True

    def unregistered(self) -> None:
        """Record that the controller does not know the broker's epoch."""
        self._epoch = UNKNOWN_EPOCH

    def may_end(self) -> None:
        """Record that others lead the broker's partitions."""
        self._may_end = True

    def asked_to_end(self, now_us: int) -> None:
        """Record that the broker was asked to shut down."""
        if self._asked_us is None:
            self._asked_us = now_us

    # --- serving and ending -------------------------------------------------------------------------------------------

    def serves(self, applied_end_offset: int) -> None:
        """Check and record that the broker has taken its partitions over. Raises Violation."""
        self.checks += 1
        if applied_end_offset <= self._epoch:
            raise self._wrong(
                BEGINS, f"serves with the metadata up to {applied_end_offset}, but its registration is {self._epoch}"
            )
        self._serves = True

    def ends(self, directories: Sequence[Directory], files: MemoryFileSystem) -> None:
        """Check a broker that is shutting down and can still be reached. Raises Violation."""
        self.checks += 1
        for directory in directories:
            if files.exists(join(directory.path, CLEAN_SHUTDOWN_NAME)):
                raise self._wrong(ENDS, f"has closed the logs of {directory.path}, but can be reached")

    def ended(
        self, directories: Sequence[Directory], now_us: int, error: BaseException | None, *, is_one_missing: bool
    ) -> None:
        """Check a broker that has shut down, because of `error` if that is set. Raises Violation."""
        self.checks += 1
        asked_us = self._asked_us
        if error is not None or asked_us is None:
            if any(directory.is_online for directory in directories):
                raise self._wrong(ENDS, f"ends by itself, but has log directories: {error!r}")
            return
        is_in_time = now_us - asked_us < self._shutdown_timeout_us
        if self._epoch != UNKNOWN_EPOCH and is_in_time and not self._may_end:
            raise self._wrong(ENDS, "ends before others lead its partitions")
        self._may_name(directories, is_one_missing=is_one_missing)

    def killed_at_its_end(
        self, directories: Sequence[Directory], files: MemoryFileSystem, *, is_one_missing: bool
    ) -> None:
        """Handle a kill while the broker closes its logs. Call this before the disk loses anything.

        The broker's last step leaves its epoch when every directory is marked. A kill after that makes no difference.
        """
        self.checks += 1
        if self._asked_us is not None and all(
            CLEAN_SHUTDOWN_NAME in files.durable_files(directory.path) for directory in directories
        ):
            self._may_name(directories, is_one_missing=is_one_missing)

    def _may_name(self, directories: Sequence[Directory], *, is_one_missing: bool) -> None:
        """Allow the next process to name this shutdown, if all logs of these directories are on disk."""
        if is_one_missing or not all(directory.is_online and directory.is_flushed for directory in directories):
            return
        found = self._found or {}
        if self._has_registered:
            self._clean |= {directory.path: self._epoch for directory in directories if self._epoch != UNKNOWN_EPOCH}
        else:
            self._clean |= found


def noted_epoch(files: MemoryFileSystem, path: str) -> int:
    """Return the durable epoch of a log directory; UNKNOWN_EPOCH if it has none."""
    durable = files.durable_files(path)
    if EPOCH_NAME not in durable:
        return UNKNOWN_EPOCH
    found = decode_properties(bytes(durable[EPOCH_NAME].data)) or {}
    return int(found.get("broker.epoch", UNKNOWN_EPOCH))
