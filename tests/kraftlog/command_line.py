"""Running commands as a user does: exit code, standard output, standard error."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Protocol

import pytest

from kraftbase.errors import ErrorCode
from kraftlog.cli.main import main
from tests.paths import ROOT

SERVERS = ("KRAFTLOG_BOOTSTRAP_SERVER", "KRAFTLOG_BROKERS")
ERROR_LINE = re.compile(r"error: (?P<name>[A-Z_]+): .+")


class Finished(NamedTuple):
    code: int
    output: str
    errors: str

    def is_error(self, code: ErrorCode, *words: str) -> bool:
        """Whether it is exit code 1 and exactly one line: Kafka's name, and all of the words."""
        line = self.errors.removesuffix("\n")
        match = ERROR_LINE.fullmatch(line)
        assert match is not None, self
        assert all(word in line for word in words), self
        return (self.code, self.output, match["name"]) == (1, "", code.name)

    def json(self) -> Any:
        """What it printed, which must be JSON, and nothing else."""
        assert (self.code, self.errors) == (0, ""), self
        return json.loads(self.output)

    def lines(self) -> list[str]:
        """What it printed, by line."""
        assert (self.code, self.errors) == (0, ""), self
        return self.output.splitlines()


class Run(Protocol):
    def __call__(self, *arguments: object) -> Finished: ...


def environment(**changes: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in SERVERS}
    return {**kept, "PYTHONPATH": str(ROOT), **changes}


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "kraftlog", *map(str, arguments)]


def kraftlog(*arguments: object, timeout: float = 100, given: str = "") -> Finished:
    """Run `kraftlog` with these arguments in a process of its own, with this as standard input."""
    finished = subprocess.run(
        command(*arguments),
        capture_output=True,
        text=True,
        timeout=timeout,
        input=given,
        env=environment(),
    )
    return Finished(finished.returncode, finished.stdout, finished.stderr)


@contextmanager
def running_brokers(addresses: object, *broker_ids: int, options: tuple[object, ...] = ()) -> Iterator[list[str]]:
    """`kraftlog brokers run` for each, one after the other: unfenced in the block, shut down at its end, all at once.

    Yields where clients reach each. They keep their data in a directory that is removed, unless `options` name another.
    """
    with TemporaryDirectory() as directory, ExitStack() as stack:
        started = [
            stack.enter_context(
                _running_broker(addresses, broker_id, ("--data-dir", Path(directory) / str(broker_id), *options))
            )
            for broker_id in broker_ids
        ]
        try:
            yield [address for _, address in started]
        finally:
            for process, _ in started:
                process.terminate()


@contextmanager
def _running_broker(
    addresses: object, broker_id: int, options: tuple[object, ...]
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    who = ("--id", broker_id, "--endpoint", "PLAINTEXT://localhost:0", *options)
    line = command("brokers", "run", *who, "--bootstrap-server", addresses)
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith(f"Broker {broker_id} is unfenced")
            yield process, process.stdout.readline().strip().removeprefix("bootstrap.servers=")
        finally:
            process.terminate()


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Runs a command in this process, which is much quicker than to start one."""
    for name in SERVERS:
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: object) -> Finished:
        code = main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return Finished(code, printed.out, printed.err)

    yield run
