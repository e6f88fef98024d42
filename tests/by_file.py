"""Which process of the tests runs which of them, and what it says of them."""

from __future__ import annotations

from typing import Any, Final

from xdist.scheduler import LoadScopeScheduling

SPARK: Final = ("tests/kraftlog/analytics/test_spark.py", "tests/kraftlog/cli/test_kafka_export.py")
"""Files that start Java within the process of the tests, where it stays until the end."""

INTERACTOR: Final = "WorkerInteractor"
"""The plugin of pytest-xdist in such a process."""


class ByFile(LoadScopeScheduling):
    """A process takes file after file, so what the tests of a file share is made once; Java is started once in all."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return "Spark" if path in SPARK else path


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
