"""What programs import from `kraftlog` is there, is pinned here, and costs nothing until it is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import kraftlog
from tests.paths import ROOT

NAMES = [
    "AdminClient",
    "ApiError",
    "BatchReader",
    "CommittedBatch",
    "DataDirectory",
    "Endpoint",
    "ErrorCode",
    "KraftlogError",
    "LeaderAndEpoch",
    "Listener",
    "MetadataPublisher",
    "NewTopic",
    "NodeConfig",
    "NodeId",
    "NotLeaderError",
    "NotSent",
    "Offset",
    "OffsetAndEpoch",
    "OutcomeUnknown",
    "PosixFileSystem",
    "RaftClient",
    "ReplicaKey",
    "ThrottlingQuotaExceededError",
    "TopicAlreadyExistsError",
    "UnknownTopicOrPartitionError",
    "Voter",
    "VoterSet",
    "__version__",
    "hosted_node",
    "load_config",
    "log_listener_fault",
    "observe",
    "parse_endpoint",
    "serve",
]


def test_these_names_are_public_and_no_others() -> None:
    assert kraftlog.__all__ == NAMES == dir(kraftlog)


@pytest.mark.parametrize("name", NAMES)
def test_each_is_what_its_module_calls_so(name: str) -> None:
    found = getattr(kraftlog, name)
    assert name == "__version__" or getattr(found, "__name__", name) == name


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        kraftlog.Nothing  # noqa: B018


def test_importing_it_imports_nothing_else() -> None:
    program = (
        "import sys, kraftlog; print([name for name in ('grpc', 'sqlite3', 'google.protobuf') if name in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"


def test_an_offset_and_epoch_takes_keywords_only_and_compares_by_epoch_first() -> None:
    with pytest.raises(TypeError):
        kraftlog.OffsetAndEpoch(1, 2)  # type: ignore[call-arg, misc]
    older, newer = kraftlog.OffsetAndEpoch(offset=9, epoch=1), kraftlog.OffsetAndEpoch(offset=3, epoch=2)
    assert older < newer == kraftlog.OffsetAndEpoch(epoch=2, offset=3)
    assert not hasattr(newer, "__dict__")
