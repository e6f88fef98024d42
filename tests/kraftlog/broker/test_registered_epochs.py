"""In which registration a log directory was last in use: what is written, what a registration names (CT-38)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from kraftbase.errors import ApiError, ErrorCode, FlushFailed, StorageError
from kraftbase.files.files import read_whole
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.runtime import AsyncioRuntime, awaited
from kraftlog.broker.registered_epochs import RegisteredEpochs, check_follows
from kraftlog.storage import registered_epoch

A, B = UUID(int=2**100 + 1), UUID(int=2**100 + 2)


@dataclass
class Directory:
    path: str
    directory_id: UUID
    offline_reason: str = ""
    noted: int = -1

    def note_registration(self, broker_epoch: int) -> None:
        self.noted = broker_epoch

    def fail(self, error: BaseException) -> None:
        self.offline_reason = str(error)


class Broker:
    """Two log directories on disks of their own, as far as epochs go."""

    def __init__(self) -> None:
        self.files = MemoryFileSystem()
        for path in ("a", "b"):
            self.files.make_directories(path)
        self.a, self.b = Directory("a", A), Directory("b", B)

    def started(self, *directories: Directory) -> RegisteredEpochs:
        return RegisteredEpochs(self.files, directories or (self.a, self.b), None)  # type: ignore[arg-type]

    def copied(self, path: str) -> Callable[[], None]:
        """Copies a file now; puts it back when it is called."""
        content = read_whole(self.files, path)

        def put_back() -> None:
            file = self.files.open(path)
            file.truncate(0)
            file.write_at(0, content)
            file.close()

        return put_back


def test_what_was_registered_is_named_after_a_crash() -> None:
    broker = Broker()
    assert broker.started().named() == [-1, -1]
    assert not broker.started().write(500)
    broker.files.crash()
    assert broker.started().named() == [500, 500]
    broker.started().write(310)  # the metadata were restored
    assert broker.started().named() == [310, 310]


def test_ct38_each_directory_names_what_it_has() -> None:
    broker = Broker()
    broker.started().write(300)
    put_back = broker.copied("a/broker-epoch")
    broker.started().write(500)
    broker.started(broker.b).write(700)  # without the other one
    assert broker.started().named() == [500, 700]
    put_back()
    assert broker.started().named() == [300, 700]


def test_ct38_an_epoch_that_is_damaged_is_none() -> None:
    broker = Broker()
    broker.started().write(500)
    broker.files.damage("a/broker-epoch", 24, b"9")
    with capture_logs() as logs:
        assert broker.started().named() == [-1, 500]
    assert "a/broker-epoch" in logs[0]["path"]


def test_ct38_on_a_full_disk_no_epoch_is_left_and_nothing_is_offline() -> None:
    """An old one would make the directory an older copy."""
    broker = Broker()
    broker.started().write(300)
    broker.files.space_limit = broker.files.used_bytes()
    assert not broker.started(broker.a).write(500)
    broker.files.space_limit = None
    broker.files.crash()
    assert broker.started().named() == [-1, 300]


@pytest.mark.parametrize("error", [StorageError("no such disk"), FlushFailed("input/output error")])
async def test_a_directory_where_it_cannot_be_written_is_offline(error: Exception) -> None:
    broker = Broker()
    broker.started().write(300)

    def fails(operation: str, path: str) -> None:
        if path.startswith("a/"):
            raise error

    broker.files.before_operation = fails
    epochs = RegisteredEpochs(broker.files, (broker.a, broker.b), AsyncioRuntime())
    with capture_logs() as logs:
        await awaited(partial(epochs.store, 500, [B.bytes]))
    assert (broker.a.offline_reason, broker.b.offline_reason) == (str(error), "")
    assert [line["path"] for line in logs if "an older copy" in line["event"]] == ["b"]
    broker.files.before_operation = None
    assert broker.started().named() == [300, 500]


def test_the_files_name_is_that_of_the_pages() -> None:
    assert registered_epoch.FILE_NAME == "broker-epoch"


@pytest.mark.parametrize("noted", [[], [-1, -1], [500, -1], [300, 500]])
def test_ct38_an_epoch_that_is_not_below_those_in_directories_is_taken(noted: list[int]) -> None:
    check_follows(1, 500, noted)


def test_ct38_an_epoch_below_one_in_a_directory_is_that_of_a_quorum_that_has_lost_something() -> None:
    with pytest.raises(ApiError, match=r"with epoch 499, .*epoch 500: the quorum has lost") as refused:
        check_follows(1, 499, [-1, 500])
    assert refused.value.code is ErrorCode.INVALID_REGISTRATION
