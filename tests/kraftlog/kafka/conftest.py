"""What an unmodified Kafka 4.3.0 has written."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def kafka_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directories of two of a Kafka's controllers, and what its tools print of them; its README.md tells more."""
    directory = tmp_path_factory.mktemp("kafka")
    with tarfile.open(Path(__file__).with_name("kafka-4.3-metadata.tar.gz")) as archive:
        archive.extractall(directory, filter="data")
    return directory / "kafka-4.3-metadata"
