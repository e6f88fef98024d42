"""What the judge of a broker's lives finds in what its processes say and do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.files.files import write_new_file
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.sentinels import UNKNOWN_EPOCH
from kraftlog.sim.engine.violation import Violation
from kraftlog.sim.replication.checkers.lives import Directory, Lives
from kraftlog.storage.formats.names import CLEAN_SHUTDOWN_NAME
from kraftlog.storage.registered_epoch import note_registration
from kraftpb.v1.admin_pb2 import BrokerHeartbeatRequest, RegisterBrokerRequest

A = Directory("a", b"id of a", is_online=True, is_flushed=True)
B = Directory("b", b"id of b", is_online=True, is_flushed=True)
TIMEOUT_US = 1_000


class Stage:
    """A broker with two log directories."""

    def __init__(self) -> None:
        self.files = MemoryFileSystem()
        for of in (A, B):
            self.files.make_directories(of.path)
        self.lives = Lives("1", TIMEOUT_US)
        self._noted: dict[str, int] = {}

    def registers(self, *directories: Directory, is_one_missing: bool = False, **told: Any) -> None:
        """A process opens these directories, and asks to be registered."""
        self.lives.started()
        self.lives.opened(directories)
        self.asks(*directories, is_one_missing=is_one_missing, **told)

    def asks(self, *directories: Directory, is_one_missing: bool = False, **told: Any) -> None:
        epochs = told.pop("log_dir_epochs", [self._noted.get(of.path, UNKNOWN_EPOCH) for of in directories])
        request = RegisterBrokerRequest(log_dirs=[of.directory_id for of in directories], log_dir_epochs=epochs, **told)
        self.lives.registers(request, directories, self.files, is_one_missing=is_one_missing)

    def is_registered(self, epoch: int, *directories: Directory) -> None:
        self._noted |= {of.path: epoch for of in directories}
        for of in directories:
            note_registration(self.files, of.path, epoch)
        self.lives.registered(epoch)

    def shuts_down(self, *directories: Directory, is_one_missing: bool = False) -> None:
        self.lives.asked_to_end(0)
        self.lives.may_end()
        self.lives.ended(directories, 1, None, is_one_missing=is_one_missing)

    def beats(self, directories: Sequence[Directory], applied: int = 0, **told: Any) -> None:
        self.lives.sends_heartbeat(BrokerHeartbeatRequest(**told), directories, self.files, applied, may_be_full=False)


def shut_down_in_epoch_5(*directories: Directory) -> Stage:
    stage = Stage()
    stage.registers(A, B)
    stage.is_registered(5, A, B)
    stage.shuts_down(*directories)
    return stage


def test_a_clean_shutdown_is_named_once() -> None:
    stage = shut_down_in_epoch_5(A, B)
    stage.registers(A, B, previous_broker_epoch=5)
    with pytest.raises(Violation, match=r"105.*not of 5"):
        stage.asks(A, B, previous_broker_epoch=4)
    stage.is_registered(9, A, B)
    with pytest.raises(Violation, match=r"105.*has registered since"):
        stage.asks(A, B, previous_broker_epoch=5)
    with pytest.raises(Violation, match=r"105.*but not in"):
        stage.registers(A, B, previous_broker_epoch=5)


@pytest.mark.parametrize("left", [A._replace(is_online=False), A._replace(is_flushed=False)])
def test_a_directory_that_was_not_closed_is_not_trusted(left: Directory) -> None:
    with pytest.raises(Violation, match=r"105.*but not in"):
        shut_down_in_epoch_5(left, B).registers(A, B, previous_broker_epoch=5)


def killed_at_the_end_of_epoch_5(marked: Sequence[Directory], left: Sequence[Directory] = (A, B)) -> Stage:
    """The directories in `marked` have the durable mark of a clean shutdown, when the process is killed."""
    stage = Stage()
    stage.registers(A, B)
    stage.is_registered(5, A, B)
    stage.lives.asked_to_end(0)
    for of in marked:
        write_new_file(stage.files, f"{of.path}/{CLEAN_SHUTDOWN_NAME}", b"")
    stage.lives.killed_at_its_end(left, stage.files, is_one_missing=False)
    return stage


def test_a_shutdown_is_clean_when_all_logs_are_closed_though_the_process_is_killed_then() -> None:
    killed_at_the_end_of_epoch_5([A, B]).registers(A, B, previous_broker_epoch=5)


def test_a_shutdown_is_not_clean_when_the_process_is_killed_before_all_logs_are_closed() -> None:
    with pytest.raises(Violation, match=r"105.*but not in"):
        killed_at_the_end_of_epoch_5([A]).registers(A, B, previous_broker_epoch=5)
    unflushed = B._replace(is_flushed=False)
    with pytest.raises(Violation, match=r"105.*but not in"):
        killed_at_the_end_of_epoch_5([A, B], [A, unflushed]).registers(A, B, previous_broker_epoch=5)


def test_an_empty_disk_in_the_place_of_another_is_not_trusted() -> None:
    stage = shut_down_in_epoch_5(A, B)
    stage.files.make_directories("c")
    other = Directory("c", b"id of c", is_online=True, is_flushed=True)
    with pytest.raises(Violation, match=r"105.*but not in \['c'\]"):
        stage.registers(A, other, previous_broker_epoch=5)


def test_a_directory_that_cannot_be_opened_ends_trust() -> None:
    with pytest.raises(Violation, match=r"105.*but not in a missing directory"):
        shut_down_in_epoch_5(A, B).registers(A, is_one_missing=True, previous_broker_epoch=5)


def test_two_directories_have_two_ids() -> None:
    stage = Stage()
    stage.registers(A)
    with pytest.raises(Violation, match=r"106.*has one id for the directories a and b"):
        stage.registers(B._replace(directory_id=A.directory_id))


def test_a_registration_names_the_epochs_that_directories_have() -> None:
    stage = shut_down_in_epoch_5(A, B)
    with pytest.raises(Violation, match=r"106.*names epoch None for a, which has 5"):
        stage.registers(A, B, log_dir_epochs=[])
    with pytest.raises(Violation, match=r"106.*names epoch 4 for b, which has 5"):
        stage.registers(A, B, log_dir_epochs=[5, 4])


def test_a_heartbeat_follows_the_note_of_its_epoch() -> None:
    stage = shut_down_in_epoch_5(A, B)
    stage.beats([A, B], broker_epoch=5)
    with pytest.raises(Violation, match=r"106.*sends a heartbeat of epoch 6, but a has 5"):
        stage.beats([A, B], broker_epoch=6)


def test_a_heartbeat_names_what_is_lost() -> None:
    stage, lost = shut_down_in_epoch_5(A, B), B._replace(is_online=False)
    stage.beats([A, lost], broker_epoch=5, offline_log_dirs=[B.directory_id])
    with pytest.raises(Violation, match=r"106.*does not report that b is lost"):
        stage.beats([A, lost], broker_epoch=5)


def test_a_broker_serves_when_it_has_applied_its_registration() -> None:
    stage = Stage()
    stage.registers(A, B)
    stage.is_registered(5, A, B)
    with pytest.raises(Violation, match=r"107.*but reports 8"):
        stage.beats([A, B], 8, broker_epoch=5, current_metadata_offset=8)
    with pytest.raises(Violation, match=r"107.*serves with the metadata up to 5"):
        stage.lives.serves(5)
    stage.lives.serves(6)
    stage.beats([A, B], 8, broker_epoch=5, current_metadata_offset=8)
    with pytest.raises(Violation, match=r"107.*but reports 9"):
        stage.beats([A, B], 8, broker_epoch=5, current_metadata_offset=9)


def test_a_broker_ends_when_others_lead_or_its_time_is_up() -> None:
    stage = Stage()
    stage.registers(A, B)
    stage.is_registered(5, A, B)
    stage.lives.asked_to_end(10)
    with pytest.raises(Violation, match=r"108.*before others lead"):
        stage.lives.ended([A, B], 11, None, is_one_missing=False)
    stage.lives.ended([A, B], 10 + TIMEOUT_US, None, is_one_missing=False)


def test_a_broker_without_a_registration_may_end_at_once() -> None:
    stage = Stage()
    stage.registers(A, B)
    stage.is_registered(5, A, B)
    stage.lives.unregistered()
    stage.lives.asked_to_end(10)
    stage.lives.ended([A, B], 11, None, is_one_missing=False)


def test_a_broker_ends_by_itself_only_without_a_log_directory() -> None:
    stage, error = Stage(), ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "all are offline")
    stage.lives.ended([A._replace(is_online=False)], 1, error, is_one_missing=False)
    with pytest.raises(Violation, match=r"108.*ends by itself"):
        stage.lives.ended([A._replace(is_online=False), B], 1, error, is_one_missing=False)


def test_logs_are_closed_when_the_broker_is_not_reached() -> None:
    stage = Stage()
    stage.lives.ends([A, B], stage.files)
    stage.files.open(f"b/{CLEAN_SHUTDOWN_NAME}", create=True)
    with pytest.raises(Violation, match=r"108.*has closed the logs of b"):
        stage.lives.ends([A, B], stage.files)
