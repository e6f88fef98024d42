"""Settings that gRPC reads from the environment."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from kraftlog.process.grpc_settings import GRPC_SETTINGS

OPENS_A_CHANNEL = "import grpc; grpc.insecure_channel('127.0.0.1:1').close()"
SHOWS_ITS_SETTINGS = """
import os
from kraftlog.cli import main
main.main = lambda arguments: print(os.environ["GRPC_EXPERIMENTS"])
main.run()
"""


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("experiments", "is_known"), [(GRPC_SETTINGS["GRPC_EXPERIMENTS"], True), ("-is_in_no_release", False)]
)
def test_grpc_knows_the_experiments_that_are_turned_off(experiments: str, is_known: bool) -> None:
    """It complains about one that it does not know. Once a release lacks ours, the setting has no effect and goes."""
    said = run(OPENS_A_CHANNEL, GRPC_EXPERIMENTS=experiments, GRPC_VERBOSITY="ERROR").stderr
    assert ("Unknown experiment" not in said) is is_known


def test_what_the_user_has_set_stays() -> None:
    unset = {name: value for name, value in os.environ.items() if name not in GRPC_SETTINGS}
    command = [sys.executable, "-c", SHOWS_ITS_SETTINGS]
    by_default = subprocess.run(command, env=unset, capture_output=True, text=True, check=True, timeout=60).stdout
    assert by_default == GRPC_SETTINGS["GRPC_EXPERIMENTS"] + "\n"
    assert run(SHOWS_ITS_SETTINGS, GRPC_EXPERIMENTS="event_engine_client").stdout == "event_engine_client\n"
