"""A real Kafka's directories, to read and to damage."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.kraftlog.kafka.conftest import kafka_data

__all__ = ["kafka_data"]


@pytest.fixture
def controller(kafka_data: Path, tmp_path: Path) -> Path:
    """A copy of the directory of the controller that led at the end."""
    return shutil.copytree(kafka_data / "controller-3", tmp_path / "controller-3")


@pytest.fixture
def other_controller(kafka_data: Path, tmp_path: Path) -> Path:
    """A copy of that of another, which was killed, removed from the voters and added again."""
    return shutil.copytree(kafka_data / "controller-2-killed", tmp_path / "controller-2")
