"""Which process of the tests runs which of them, and what it says of them."""

from __future__ import annotations

from typing import Any, Final

from xdist.scheduler import LoadScopeScheduling

SPARK: Final = ("tests/kraftlog/analytics/test_spark.py", "tests/kraftlog/cli/test_kafka_export.py")
"""Files that start Java within the process of the tests, where it stays until the end."""

SHARED: Final = ("tests/process/shared_cluster/", "tests/process/shared_voter/")
"""Packages whose tests share running nodes: in each other process they would start, and idle, once more."""

INTERACTOR: Final = "WorkerInteractor"
"""The plugin of pytest-xdist in such a process."""


class ByFile(LoadScopeScheduling):
    """A process takes file after file, so what the tests of a file share is made once; Java is started once in all."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid.partition("::")[0])


def scope_of(path: str) -> str:
    """What one process runs from beginning to end: a file, given by its path from the root, or all that it shares with.

    The order of the tests keeps a scope together.
    """
    if path in SPARK:
        return "Spark"
    return next((package for package in SHARED if path.startswith(package)), path)


def say_less(config: Any) -> None:
    """Have this process of tests send no reports that nobody shows: of setups and teardowns that pass, and of starts.

    Each report takes a millisecond of processor time, most of it in the process that reads it.
    """
    interactor = next(plugin for plugin in config.pluginmanager.get_plugins() if type(plugin).__name__ == INTERACTOR)
    send = interactor.sendevent

    def send_what_is_shown(name: str, **said: Any) -> None:
        report = said.get("data", {}) if name == "testreport" else {}
        if name != "logstart" and not (report.get("outcome") == "passed" and report["when"] != "call"):
            send(name, **said)

    interactor.sendevent = send_what_is_shown
