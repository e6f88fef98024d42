"""Changed batches are read alike by the compiled loop, by the one in Python, and one number at a time."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest

from tests.effort import examples
from tests.kraftlog.kafka.record_fuzz import all_loops, check_batch
from tests.paths import ROOT


def test_changed_batches_are_read_alike() -> None:
    loops, refused = all_loops(), 0
    for seed in range(examples(8_000)):
        refused += bool(check_batch(random.Random(seed), loops))
    assert examples(8_000) * 0.2 < refused < examples(8_000) * 0.9


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_a_million_changed_batches_are_read_alike_in_a_process_of_its_own() -> None:
    """Whatever C does wrong there ends that process."""
    if len(all_loops()) < 3:
        pytest.skip("the loop is not compiled; tests/kraftlog/kafka/test_record_reader.py fails if it could be")
    command = [sys.executable, "-X", "dev", "-m", "tests.kraftlog.kafka.record_fuzz", "1000000", "1"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "all readers find the same" in ended.stdout
