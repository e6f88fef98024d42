"""Run the test suites of other projects' clients against a kraftlog broker: `make client-suites`.

Each suite comes from the registry of its language, at the version that `client_suites.toml` names. It runs against one
node and one broker, which creates the topics that the tests ask for. The result is compared with the list of tests that
are known to fail: the exit code is 1 if another test fails or a listed one passes, and 2 if a suite could not run. The
other suites still run then.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

SUITES: Final = Path(__file__).with_suffix(".toml")
KRAFTLOG: Final = Path(sys.executable).with_name("kraftlog")
START_SECONDS: Final = 60.0
BUILD_SECONDS: Final = 900.0
"""The limit for fetching a suite, and for building it."""
FRAME: Final = "\x16"
"""`-test.v=test2json` marks its own lines with it, also after a test's line that has no end."""
OUTCOME: Final = re.compile(rf"(?:^|{FRAME}) *--- (PASS|FAIL|SKIP): (\S+) \(", re.MULTILINE)
STARTED: Final = re.compile(rf"(?:^|{FRAME})=== RUN +(\S+)$", re.MULTILINE)


class SuiteError(Exception):
    """A suite could not run. The message has a remedy."""


@dataclass(frozen=True)
class Result:
    """The result of a suite."""

    passed: int
    skipped: int
    known: Mapping[str, str]
    """The tests that fail and are listed, each with the reason in the list."""
    unknown: tuple[str, ...]
    """The tests that fail and are not listed."""
    mended: tuple[str, ...]
    """The tests that are listed and pass."""
    missing: tuple[str, ...]
    """The tests that are listed and did not run."""

    @property
    def is_as_listed(self) -> bool:
        """Whether the result matches the list."""
        return not (self.unknown or self.mended or self.missing)


def outcomes(output: str, exit_code: int) -> dict[str, str]:
    """Return PASS, FAIL or SKIP for each test in the output of `go test -v`.

    A failed test with failed subtests is left out: only its subtests count. Raises SuiteError if the suite ended before
    all of its tests had: then a test has no outcome, or `exit_code` is neither 0 nor 1.
    """
    found = {name: outcome for outcome, name in OUTCOME.findall(output)}
    unfinished = [name for name in STARTED.findall(output) if name not in found]
    if exit_code not in (0, 1) or unfinished:
        last = unfinished[-1] if unfinished else "its last test"
        raise SuiteError(f"it ended with code {exit_code} in {last}; its last lines: {output[-1_000:]}")
    failing = [name for name, outcome in found.items() if outcome == "FAIL"]
    return {
        name: outcome
        for name, outcome in found.items()
        if outcome != "FAIL" or not any(other.startswith(f"{name}/") for other in failing)
    }


def compare(found: Mapping[str, str], listed: Mapping[str, str]) -> Result:
    """Compare outcomes with the list of tests that fail."""
    failing = [name for name, outcome in found.items() if outcome == "FAIL"]
    return Result(
        passed=sum(outcome == "PASS" for outcome in found.values()),
        skipped=sum(outcome == "SKIP" for outcome in found.values()),
        known={name: listed[name] for name in failing if name in listed},
        unknown=tuple(name for name in failing if name not in listed),
        mended=tuple(name for name in listed if found.get(name) == "PASS"),
        missing=tuple(name for name in listed if name not in found),
    )


@contextmanager
def broker(address: str, directory: Path) -> Iterator[None]:
    """Run one node, and one broker that listens at an address, within the block. Raises SuiteError."""
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        probe.settimeout(1)
        if probe.connect_ex((host, int(port))) == 0:
            raise SuiteError(f"a process listens at {address}, which the suite's tests use: stop it first")
    with _started(("up", "--voters", "1", "--dir", directory / "nodes"), directory / "nodes.log", " is up") as said:
        node = re.findall(r"KRAFTLOG_BOOTSTRAP_SERVER=(\S+)", said)[0]
        options = ("--config", "auto.create.topics.enable=true", "--config", "default.replication.factor=1")
        command = ("brokers", "run", "--id", "1", "--bootstrap-server", node, "--endpoint", f"PLAINTEXT://{address}")
        with _started((*command, "--data-dir", directory / "broker", *options), directory / "broker.log", "unfenced"):
            yield


@contextmanager
def _started(arguments: tuple[object, ...], log: Path, ready: str) -> Iterator[str]:
    with log.open("w") as said:
        process = subprocess.Popen([KRAFTLOG, *map(str, arguments)], stdout=said, stderr=said)
    try:
        ends_at = time.monotonic() + START_SECONDS
        while ready not in log.read_text():
            if process.poll() is not None or time.monotonic() > ends_at:
                raise SuiteError(f"kraftlog {arguments[0]} did not start: {log.read_text()[-1_000:]}")
            time.sleep(0.1)
        yield log.read_text()
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def run_suite(suite: Mapping[str, Any], directory: Path) -> dict[str, str]:
    """Build and run a suite in Go; return the outcome of each test. Raises SuiteError."""
    if shutil.which("go") is None:
        raise SuiteError("there is no go on PATH: install it (apt-get install golang), 1.23 or newer")
    module, version = suite["module"], suite["version"]
    fetched = _ask("go", "mod", "download", "-json", f"{module}@{version}", directory=directory)
    source = directory / "suite"
    shutil.copytree(json.loads(fetched)["Dir"], source)
    for path in (source, *source.rglob("*")):
        path.chmod(path.stat().st_mode | 0o200)  # modules are read-only
    _ask("go", "test", "-c", "-o", "suite.test", ".", directory=source)
    with broker(suite["address"], directory):
        return outcomes(*_run(source, suite["timeout_seconds"], "|".join(suite["skipped"])))


def _run(source: Path, timeout_seconds: float, skipped: str) -> tuple[str, int]:
    """Return the output of the suite's tests, and their exit code."""
    options = ("-test.v=test2json", "-test.short", f"-test.timeout={timeout_seconds}s", f"-test.skip={skipped}")
    environment = {**os.environ, "KAFKA_VERSION": "4.3.0", "KAFKA_SKIP_NETTEST": "1"}
    try:
        ran = subprocess.run(
            [source / "suite.test", *options],
            cwd=source,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            timeout=timeout_seconds + 60,  # it ends by itself before that
        )
    except subprocess.TimeoutExpired as expired:
        raise SuiteError(f"its tests were still running after {expired.timeout:g} s") from None
    if "panic: test timed out" in ran.stdout:
        raise SuiteError(f"it did not end within {timeout_seconds} s; its last lines: {ran.stdout[-500:]}")
    return ran.stdout, ran.returncode


def _ask(*command: str, directory: Path) -> str:
    environment = {**os.environ, "GOFLAGS": f"{os.environ.get('GOFLAGS', '')} -mod=mod".strip()}
    try:
        ran = subprocess.run(
            command,
            cwd=directory,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=BUILD_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise SuiteError(f"{' '.join(command)} was still running after {BUILD_SECONDS:g} s") from None
    if ran.returncode:
        raise SuiteError(f"{' '.join(command)} failed: {(ran.stderr or ran.stdout).strip()[-1_000:]}")
    return ran.stdout


def show(name: str, result: Result) -> None:
    """Print the result of a suite."""
    print(f"{name}: {result.passed} passed, {result.skipped} skipped, {len(result.known)} fail as listed")
    for test, why in sorted(result.known.items(), key=lambda of: (of[1], of[0])):
        print(f"  {test}: {why}")
    for test in result.unknown:
        print(f"  {test} FAILS and is not listed in {SUITES.name}")
    for test in result.mended:
        print(f"  {test} passes and is listed as failing in {SUITES.name}")
    for test in result.missing:
        print(f"  {test} is listed in {SUITES.name} and did not run")


def main() -> int:
    """Run the named suites, or all."""
    suites = tomllib.loads(SUITES.read_text())
    parser = argparse.ArgumentParser(description="Run the test suites of other clients against a kraftlog broker.")
    parser.add_argument("suite", nargs="*", help=f"suites to run: {', '.join(suites)}; default: all")
    parser.add_argument("--output", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.suite if name not in suites]
    if unknown:
        parser.error(f"there is no suite {unknown[0]!r}; choose from {', '.join(suites)}")
    results, is_complete = {}, True
    for name in arguments.suite or suites:
        try:
            with tempfile.TemporaryDirectory(prefix="client-suites-") as directory:
                print(f"{name}: building and running it takes some minutes", file=sys.stderr)
                results[name] = compare(run_suite(suites[name], Path(directory)), suites[name]["failing"])
        except SuiteError as error:
            print(f"{name}: {error}", file=sys.stderr)
            is_complete = False
    if arguments.output == "json":
        print(json.dumps({name: vars(result) for name, result in results.items()}, indent=2))
    else:
        for name, result in results.items():
            show(name, result)
    if not is_complete:
        return 2
    return 0 if all(result.is_as_listed for result in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
