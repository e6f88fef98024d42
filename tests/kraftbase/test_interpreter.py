"""How often Python collects garbage in a process of ours."""

from __future__ import annotations

import subprocess
import sys

from kraftbase.interpreter import OBJECTS_WHILE_STARTING, OLD_LOOKS_SELDOM
from tests.kraftlog.command_line import environment


def test_it_looks_for_garbage_seldom_while_a_process_starts_and_among_old_objects_seldom_in_a_broker() -> None:
    program = """
import gc
default = gc.get_threshold()
from kraftbase.interpreter import keep_what_is_there, look_at_old_objects_seldom, start_sooner
start_sooner()
print(gc.get_threshold()[0])
keep_what_is_there()
print(gc.get_threshold() == default)
look_at_old_objects_seldom()
print(gc.get_threshold()[:2] == default[:2], gc.get_threshold()[2])
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment())
    assert ended.stdout.split() == [str(OBJECTS_WHILE_STARTING), "True", "True", str(OLD_LOOKS_SELDOM)], ended
