"""What holds for every test.

`make test` runs them in several processes (pytest-xdist): each has ports of its own to choose from.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import Any, Final

import hypothesis
import pytest
import structlog
from hypothesis.internal.conjecture import providers

from kraftlog.kafka import record_reader
from kraftlog.kafka.record_reader import INTERPRETED, Loop, compiled_loop
from kraftlog.local.cluster_directory import LISTENING_PORT_MIN, PORTS_VARIABLE
from tests import forked_starts
from tests.by_file import ByFile, say_less, scope_of
from tests.effort import all_cases, examples
from tests.java import why_no_java
from tests.statemachine.states import close_databases
from tests.time_limit import TimeLimits

hypothesis.settings.register_profile(
    "any speed", max_examples=examples(100), deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any speed")  # its limits are times, which a busy machine exceeds

LISTENING_PORTS_END: Final = 32768
"""Linux gives outgoing connections the ports from here on."""

JAVA_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Half of the processor time of the tests with Spark went into compiling for runs that are longer."""

THREADS: Final = "/proc/self/task"

FORKING: Final = pytest.StashKey[forked_starts.Forking]()


@pytest.fixture(autouse=True)
def all_as_before() -> Iterator[None]:
    """What a test must not leave to later ones. One fixture does it: each costs every test, and most take less.

    A command run in the test's process sets up logging; the next one would log to a closed capture. The databases that
    the test has made with `tests.statemachine.states.database_of` are closed.

    A client of librdkafka in a cycle lives on, and its threads write to the standard error of later tests. One whose
    callback has raised stays all the same; the only test with such a client lets it write nothing. Later tests do not
    look for it: that would take each of them 0.1 s and more.
    """
    logging_before, last_resort = structlog.get_config(), logging.lastResort
    threads_before = os.listdir(THREADS)  # noqa: PTH208 - each test does this, and paths take ten times as long
    yield
    collect_kafka_clients(threads_before)
    close_databases()
    structlog.configure(**logging_before)
    logging.lastResort = last_resort


@pytest.fixture(autouse=True, scope="module")
def kafka_clients_of_modules_are_closed() -> Iterator[None]:
    """Those that the tests of a module share, at its end."""
    before = os.listdir(THREADS)  # noqa: PTH208
    yield
    collect_kafka_clients(before)


def collect_kafka_clients(before: list[str]) -> None:
    """Look for garbage if a client that was made since there were these threads is still there."""
    if has_kafka_clients(set(os.listdir(THREADS)).difference(before)):  # noqa: PTH208
        gc.collect()


def has_kafka_clients(threads: set[str]) -> bool:
    """Whether one of these threads of this process, by their numbers, is librdkafka's."""
    for thread in threads:
        with suppress(OSError), open(f"{THREADS}/{thread}/comm") as file:  # noqa: PTH123 - one may have ended meanwhile
            if file.read().startswith("rdk:"):
                return True
    return False


@pytest.fixture(params=["compiled", "interpreted"])
def record_loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Loop:
    """Each of the two loops that read records, which is in use meanwhile."""
    loop = compiled_loop() if request.param == "compiled" else INTERPRETED
    if loop is None:
        pytest.skip("the loop is not compiled; tests/kraftlog/kafka/test_record_reader.py fails if it could be")
    monkeypatch.setattr(record_reader, "loop", loop)
    return loop


@pytest.fixture
def compiled_record_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiled loop reads records."""
    loop = compiled_loop()
    if loop is None:
        pytest.skip("the loop is not compiled; tests/kraftlog/kafka/test_record_reader.py fails if it could be")
    monkeypatch.setattr(record_reader, "loop", loop)


def is_local(path: str) -> bool:
    """Hypothesis reads no file of ours for constants: each process of tests would parse all of them, which takes 10 s.

    And what it tries does not depend on the other tests of its process, then.
    """
    return False


def pytest_addoption(parser: pytest.Parser) -> None:
    """A flag for `tests.transcripts`, and the order of the tests."""
    parser.addoption("--rewrite-transcripts", action="store_true", help="write what happens into the transcripts")
    parser.addoption("--reverse", action="store_true", help="run the tests from the last to the first")


def pytest_configure(config: pytest.Config) -> None:
    """Two processes of tests must not choose the same port: one may be chosen long before somebody listens there.

    And whoever started them may have had them ignore signals, as nohup and shells in the background do. What they
    start would ignore them, too. `make slow` starts all processes as Python does it.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    os.environ.setdefault("SPARK_SUBMIT_OPTS", JAVA_OPTIONS)
    config.pluginmanager.register(TimeLimits())
    if not all_cases():
        config.stash[FORKING] = forked_starts.install()
        providers.is_local_module_file = is_local  # type: ignore[attr-defined]
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is not None:
        count = (LISTENING_PORTS_END - LISTENING_PORT_MIN) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        first = LISTENING_PORT_MIN + count * int(worker.removeprefix("gw"))
        os.environ[PORTS_VARIABLE] = f"{first}-{first + count - 1}"
        say_less(config)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect without looking for garbage: what is made is kept, and no later look goes through these objects again.

    Each process of tests collects all of them, a third faster so.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    """Begin with the first files of the order below."""
    config.option.loadscopereorder = False
    return ByFile(config, log)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what starts Spark where there is no Java for it."""
    if item.get_closest_marker("spark"):
        reason = why_no_java()
        if reason is not None:
            pytest.skip(reason)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Spread the files that start processes, and mostly wait for them, among the others; with `--reverse`, backwards.

    Each process of tests begins with a part of this order. In that of the names one would have nearly all that wait,
    and all of them would wait at the end.
    """
    scopes: dict[str, list[pytest.Item]] = {}
    for item in items:
        scopes.setdefault(scope_of(item.nodeid.partition("::")[0]), []).append(item)
    waiting = {scope for scope, found in scopes.items() if any(item.get_closest_marker("process") for item in found)}
    place: dict[str, float] = {}
    for kind in (waiting, scopes.keys() - waiting):
        count, all_count = 0, sum(len(scopes[scope]) for scope in kind)
        for scope in (scope for scope in scopes if scope in kind):
            place[scope] = (count + len(scopes[scope]) / 2) / all_count
            count += len(scopes[scope])
    items[:] = [item for scope in sorted(scopes, key=place.__getitem__) for item in scopes[scope]]
    if config.getoption("reverse"):
        items.reverse()


@pytest.hookimpl(tryfirst=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """All processes have ended."""
    if FORKING in config.stash:
        config.stash[FORKING].close()
