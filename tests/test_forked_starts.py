"""What is started by fork is what Python would have started: a child with its own descriptors and directory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.forked_starts import Forking, by_exec, request_of
from tests.kraftlog.command_line import command, environment
from tests.paths import ROOT

CONFIGURED = "KRAFTLOG_BOOTSTRAP_SERVER"


def call(*words: object, kept: tuple[int, ...] = (9,), directory: str | None = None, **changes: str) -> tuple[Any, ...]:
    """The arguments of a call of `_fork_exec`."""
    variables = [os.fsencode(f"{name}={value}") for name, value in environment(**changes).items()]
    return (
        [*map(str, words)], (), True, kept, directory, variables, 3, 4, 5, 6, 7, 8, 2, 9, True, True, -1, None, None,
        None, -1, None,
    )  # fmt: skip


def test_what_is_asked_for_is_what_popen_wants() -> None:
    request = request_of(call(*command("topics", "list"), directory="/tmp", **{CONFIGURED: "localhost:1"}))
    assert request is not None
    assert (request["arguments"], request["directory"], request["has_session"]) == (["topics", "list"], "/tmp", True)
    assert request["environment"] == environment(**{CONFIGURED: "localhost:1"})


def test_a_command_in_a_network_namespace_is_asked_for_there() -> None:
    request = request_of(call("ip", "netns", "exec", "there", *command("start", "--config", "1.toml")))
    assert request is not None
    assert (request["namespace"], request["arguments"]) == ("there", ["start", "--config", "1.toml"])


def test_it_is_in_its_network_namespace(tmp_path: Path) -> None:
    name = f"kraftlog-test-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"no network namespaces here: {made.stderr.strip()}")
    try:
        config = tmp_path / "node.toml"
        os.mkfifo(config)
        line = ["ip", "netns", "exec", name, *command("start", "--config", config)]
        with (
            subprocess.Popen(line, env=environment(), stdin=subprocess.DEVNULL) as process,
            config.open("w"),  # it has begun to read it
        ):
            there, here = (Path(path).stat() for path in (f"/proc/{process.pid}/ns/net", f"/run/netns/{name}"))
            assert Path(f"/proc/{process.pid}/comm").read_text() == "kraftlog start\n"  # not `ip`
            assert (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)
            process.kill()
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


@pytest.mark.parametrize(
    "arguments",
    [
        call("/bin/true"),
        call("ip", "netns", "exec", "there"),
        call("ip", "netns", "exec", "there", "/bin/true"),
        call(sys.executable, "-c", "0"),
        call(*command("topics"), kept=(8, 9)),
        call(*command("topics"), PYTHONHASHSEED="1"),
        call(*command("topics"), GRPC_VERBOSITY="debug"),
        call(*command("topics"), PYTHONPATH="/elsewhere"),
        call(*command("topics"))[:16],
    ],
)
def test_anything_else_is_started_as_python_does_it(arguments: tuple[Any, ...]) -> None:
    assert request_of(arguments) is None


def test_it_is_a_child_that_prints_and_has_an_exit_code(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert subprocess._fork_exec is not by_exec  # type: ignore[attr-defined]
    line = command("topics", "list", "--bootstrap-server", "localhost:1")
    told = subprocess.run(line, env=environment(), capture_output=True, text=True, cwd=tmp_path, check=False)
    by_python = subprocess.run(
        [*line[:1], "-P", *line[1:]], env=environment(PYTHONHASHSEED="1"), capture_output=True, text=True, check=False
    )
    assert (told.returncode, told.stdout, told.stderr) == (
        by_python.returncode,
        by_python.stdout,
        by_python.stderr,
    )
    assert told.returncode == 1
    assert capfd.readouterr() == ("", "")


def test_it_has_descriptors_a_directory_and_a_session_of_its_own_and_is_waited_for(tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    os.mkfifo(config)
    request = {
        "module": "kraftlog",
        "arguments": ["start", "--config", config.name],
        "namespace": None,
        "directory": str(tmp_path),
        "environment": environment(),
        "has_session": True,
        "starts_others": False,
    }
    forking = Forking()
    with open(os.devnull, "r+") as nothing:  # noqa: PTH123
        pid = forking.start(request, [nothing.fileno()] * 3)
    forking.close()
    with config.open("w"):  # it has begun to read it
        assert Path(f"/proc/{pid}/cwd").resolve() == tmp_path
        assert Path(f"/proc/{pid}/fd/1").resolve() == Path(os.devnull)
        assert os.getsid(pid) == pid
        assert Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1] == str(os.getpid())
        os.kill(pid, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


ENDING = """
import atexit, sys, threading
from tests.forking import end_at_once

class Freed:
    def __del__(self):
        sys.__stderr__.write("freed")

freed = Freed()
atexit.register(print, "the functions for the end")
may_end = threading.Event()
threading.Thread(target=lambda: (may_end.wait(), print("the other thread"))).start()
threading._register_atexit(may_end.set)
end_at_once(int(sys.argv[1]))
sys.exit(120)
"""


def test_it_ends_after_its_threads_and_what_is_registered_for_the_end_and_has_written_all() -> None:
    line, buffering = [sys.executable, "-c", ENDING, "7"], environment(PYTHONUNBUFFERED="")
    ended = subprocess.run(line, env=buffering, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (7, "")
    assert ended.stdout.splitlines() == ["the other thread", "the functions for the end"]
    with open("/dev/full", "w") as full:  # noqa: PTH123
        ended = subprocess.run(line, env=buffering, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 120
    assert "No space left on device" in ended.stderr


def test_the_packages_are_those_of_this_tree() -> None:
    assert environment()["PYTHONPATH"] == str(ROOT)
