"""`bench cost`: the nodes of both versions have the environment that their own version gives them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftlog.bench import cost
from kraftlog.process import grpc_settings


def test_nodes_do_not_inherit_what_this_process_has_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_settings, "set_here", ["GRPC_EXPERIMENTS"])
    command = cost._start_command(Path("/other"), Path("node.toml"))
    assert command[:3] == ["env", "--unset=GRPC_EXPERIMENTS", "PYTHONPATH=/other"]
