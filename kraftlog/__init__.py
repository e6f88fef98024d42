"""A KRaft-style replicated metadata log: what programs import.

    from kraftlog import AdminClient, Listener, observe

A name is looked up when it is first used, so that `import kraftlog` costs little. All else may change between releases.
Raises ImportError if a user's file, such as raft.py, shadows one of kraftlog's packages; the command `kraftlog` reports
this itself, without a traceback.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from kraftlog.process.installation import foreign_package

if TYPE_CHECKING:
    from kraftbase.endpoint import Endpoint
    from kraftbase.errors import (
        ApiError,
        ErrorCode,
        KraftlogError,
        NotLeaderError,
        ThrottlingQuotaExceededError,
        TopicAlreadyExistsError,
        UnknownTopicOrPartitionError,
    )
    from kraftbase.files.posix import PosixFileSystem
    from kraftbase.types import NodeId, Offset
    from kraftlog.admin.client.client import AdminClient, NewTopic
    from kraftlog.admin.client.operation_stream import NotSent, OutcomeUnknown
    from kraftlog.config.config import NodeConfig, load_config
    from kraftlog.process.server import serve
    from raft.client import RaftClient
    from raft.core.types import LeaderAndEpoch, OffsetAndEpoch, ReplicaKey
    from raft.core.voters import Voter, VoterSet
    from raft.host import hosted_node
    from raft.listener import BatchReader, CommittedBatch, Listener
    from raft.node import log_listener_fault
    from raft.observe import observe, parse_endpoint
    from raft.storage.directory import DataDirectory
    from statemachine.apply.publishers import MetadataPublisher

__version__ = "0.1.0"

__all__ = [
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

_MODULE_OF: Final = {
    name: module
    for module, names in {
        "kraftbase.endpoint": ("Endpoint",),
        "kraftbase.errors": (
            "ApiError",
            "ErrorCode",
            "KraftlogError",
            "NotLeaderError",
            "ThrottlingQuotaExceededError",
            "TopicAlreadyExistsError",
            "UnknownTopicOrPartitionError",
        ),
        "kraftbase.files.posix": ("PosixFileSystem",),
        "kraftlog.admin.client.client": ("AdminClient", "NewTopic"),
        "kraftlog.admin.client.operation_stream": ("NotSent", "OutcomeUnknown"),
        "kraftlog.config.config": ("NodeConfig", "load_config"),
        "kraftlog.process.server": ("serve",),
        "raft.client": ("RaftClient",),
        "raft.core.types": ("LeaderAndEpoch", "NodeId", "Offset", "OffsetAndEpoch", "ReplicaKey"),
        "raft.core.voters": ("Voter", "VoterSet"),
        "raft.host": ("hosted_node",),
        "raft.listener": ("BatchReader", "CommittedBatch", "Listener"),
        "raft.node": ("log_listener_fault",),
        "raft.observe": ("observe", "parse_endpoint"),
        "raft.storage.directory": ("DataDirectory",),
        "statemachine.apply.publishers": ("MetadataPublisher",),
    }.items()
    for name in names
}


def _is_command() -> bool:
    """Whether this process is the command, `bin/kraftlog` or `python -m kraftlog`, which imports this package first."""
    program = sys.argv[0] if sys.argv else ""
    return program.endswith("/kraftlog") or (program == "-m" and "kraftlog" in sys.orig_argv)


if not _is_command() and (_reason := foreign_package()) is not None:
    raise ImportError(_reason)


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted(__all__)
