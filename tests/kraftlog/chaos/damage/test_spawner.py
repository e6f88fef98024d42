"""Commands as forked processes: their output, their ends, and what happens to them when the spawner ends."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from kraftlog.chaos.damage.processes import Spawner
from kraftlog.chaos.damage.spawner import answer

pytestmark = pytest.mark.process


def ended(spawner: Spawner, pid: int) -> int:
    while (code := spawner.exit_code(pid)) is None:
        time.sleep(0.01)
    return code


def test_a_command_runs_and_ends_as_by_itself(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with Spawner() as spawner:
        assert ended(spawner, spawner.start(["--version"], log)) == 0
        assert log.read_text().startswith("kraftlog ")
        assert ended(spawner, spawner.start(["random-uuids"], log)) == 2
        assert "random-uuids" in log.read_text()
        config = ["start", "--config", str(tmp_path / "none.toml")]
        assert ended(spawner, spawner.start(config, log)) == 1


def test_a_process_id_that_comes_again_is_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    codes: dict[int, int] = {}
    monkeypatch.setattr(os, "fork", lambda: 7)
    monkeypatch.setattr(os, "waitpid", lambda pid, options: (pid, signal.SIGKILL))
    assert answer({"start": [], "log": ""}, codes) == {"pid": 7}
    assert answer({"exit_code_of": 7}, codes) == {"pid": 7, "code": -signal.SIGKILL}
    monkeypatch.setattr(os, "waitpid", lambda pid, options: (0, 0))
    assert answer({"exit_code_of": 7}, codes) == {"pid": 7, "code": -signal.SIGKILL}
    assert answer({"start": [], "log": ""}, codes) == {"pid": 7}
    assert answer({"exit_code_of": 7}, codes) == {"pid": 7, "code": None}
