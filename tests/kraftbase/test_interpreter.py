"""How often Python looks for garbage in a process of ours."""

from __future__ import annotations

import subprocess
import sys

from kraftbase.interpreter import OBJECTS_WHILE_STARTING
from tests.kraftlog.command_line import environment


def test_it_looks_for_garbage_seldom_while_a_process_starts_and_as_often_as_ever_when_that_serves() -> None:
    program = """
import gc
default = gc.get_threshold()
from kraftbase.interpreter import keep_what_is_there, start_sooner
start_sooner()
print(gc.get_threshold()[0])
keep_what_is_there()
print(gc.get_threshold() == default)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment())
    assert ended.stdout.split() == [str(OBJECTS_WHILE_STARTING), "True"], ended
