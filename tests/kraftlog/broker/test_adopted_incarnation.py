"""As which incarnation an adopted broker registers: the file, and who reads and removes it (CT-39)."""

from __future__ import annotations

from uuid import UUID

import pytest

from kraftbase.errors import FlushFailed
from kraftbase.files.files import join, write_new_file
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.files.properties import encode_properties
from kraftbase.uuids import random_cluster_id, random_uuid, uuid_to_text
from kraftlog.broker.adopted_incarnation import FILE_NAME, adopted_incarnation, leave_adopted_incarnation
from kraftlog.broker.directory import BrokerDirectory
from kraftlog.broker.lifecycle import BrokerLifecycle
from kraftpb.v1.admin_pb2 import BrokerHeartbeatResponse, RegisterBrokerResponse
from statemachine.words.adopted_brokers import adopted_as

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


async def nothing_applied() -> int:
    return 0


class Epochs:
    """The epochs in log directories, which cannot be written at first."""

    def __init__(self, files: MemoryFileSystem) -> None:
        self.files, self.is_broken = files, True

    def named(self) -> list[int]:
        return [3]

    async def note(self, broker_epoch: int, older_log_dirs: object) -> None:
        assert adopted_incarnation(self.files, DIRECTORY) == ADOPTED
        if self.is_broken:
            raise FlushFailed("not now")


class Controller:
    """Lets every broker in; keeps as whom."""

    def __init__(self) -> None:
        self.incarnations: list[str] = []

    async def registration(self, *_: object, incarnation_id: str, **__: object) -> RegisterBrokerResponse:
        self.incarnations.append(incarnation_id)
        return RegisterBrokerResponse(broker_epoch=1_000_000)

    async def broker_heartbeat(self, *_: object, **__: object) -> BrokerHeartbeatResponse:
        return BrokerHeartbeatResponse()

    def when_disconnected(self, callback: object) -> None:
        """Never."""


async def test_ct39_it_is_forgotten_when_the_log_directories_know_the_registration(files: MemoryFileSystem) -> None:
    controller, epochs = Controller(), Epochs(files)
    for is_broken in (True, False):
        epochs.is_broken = is_broken
        directory = BrokerDirectory.open(files, DIRECTORY, 1)
        life = BrokerLifecycle(
            controller, broker_id=1, listeners=[], directory=directory, epochs=epochs, metadata_offset=nothing_applied,
        )  # fmt: skip
        life.start()
        if is_broken:
            with pytest.raises(FlushFailed):
                await life.registered()
        else:
            await life.registered()
        assert (adopted_incarnation(files, DIRECTORY) is not None) == is_broken
        await life.stop(is_clean=False)
    assert controller.incarnations == [uuid_to_text(ADOPTED)] * 2
