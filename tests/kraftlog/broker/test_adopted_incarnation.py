"""As which incarnation an adopted broker registers: the file, and who reads and removes it (CT-39)."""

from __future__ import annotations

from typing import cast
from uuid import UUID

import pytest

from kraftbase.errors import FlushFailed
from kraftbase.files.files import join, write_new_file
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.files.properties import encode_properties
from kraftbase.runtime import OnDone
from kraftbase.uuids import random_cluster_id, random_uuid
from kraftlog.broker.adopted_incarnation import FILE_NAME, adopted_incarnation, leave_adopted_incarnation
from kraftlog.broker.directory import BrokerDirectory
from kraftlog.broker.registered_epochs import RegisteredEpochs
from kraftpb.v1.admin_pb2 import OperationResult, RegisterBrokerResponse
from statemachine.words.adopted_brokers import adopted_as
from tests.kraftlog.broker.shell.membership_commands import Stage

DIRECTORY = "/broker"
ADOPTED = UUID(bytes=adopted_as(UUID(int=2**127 + 5)))


@pytest.fixture
def files() -> MemoryFileSystem:
    """The directory of a broker that was adopted."""
    found = MemoryFileSystem()
    directory = BrokerDirectory.open(found, DIRECTORY, 1)
    directory.claim(random_cluster_id(), random_uuid())
    directory.close()
    assert adopted_incarnation(found, DIRECTORY) is None
    leave_adopted_incarnation(found, DIRECTORY, ADOPTED)
    found.crash()
    return found


def test_ct39_it_is_there_until_it_is_forgotten(files: MemoryFileSystem) -> None:
    for _ in range(2):
        directory = BrokerDirectory.open(files, DIRECTORY, 1)
        assert directory.adopted_incarnation == ADOPTED
        directory.close()
    directory = BrokerDirectory.open(files, DIRECTORY, 1)
    directory.forget_adoption()
    directory.forget_adoption()
    directory.close()
    files.crash()
    assert adopted_incarnation(files, DIRECTORY) is None


@pytest.mark.parametrize(
    "content", [b"", encode_properties("version=2\n"), encode_properties("version=1\nincarnation.id=x\n")]
)
def test_ct39_a_damaged_one_is_none(files: MemoryFileSystem, content: bytes) -> None:
    write_new_file(files, join(DIRECTORY, FILE_NAME), content)
    assert adopted_incarnation(files, DIRECTORY) is None


class Epochs:
    """The epochs in log directories, which cannot be written at first."""

    def __init__(self, files: MemoryFileSystem) -> None:
        self.files, self.is_broken = files, True

    def named(self) -> list[int]:
        return [3]

    def store(self, broker_epoch: int, older_log_dirs: object, on_noted: OnDone) -> None:
        assert adopted_incarnation(self.files, DIRECTORY) == ADOPTED
        on_noted(FlushFailed("not now") if self.is_broken else None)


def test_ct39_it_is_forgotten_when_the_log_directories_know_the_registration(files: MemoryFileSystem) -> None:
    stage, epochs = Stage(files), Epochs(files)
    for is_broken in (True, False):
        epochs.is_broken = is_broken
        stage.start(cast(RegisteredEpochs, epochs))
        stage.settle(OperationResult(register_broker=RegisterBrokerResponse(broker_epoch=1_000_000)))
        assert stage.process.broker_epoch == (-1 if is_broken else 1_000_000)
        assert (adopted_incarnation(files, DIRECTORY) is not None) == is_broken
        stage.end(None)
    assert [line.split(",")[0] for line in stage.lines if "registers" in line] == [
        f"registers as incarnation {ADOPTED.int}"
    ] * 2
