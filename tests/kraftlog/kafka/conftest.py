"""What an unmodified Kafka 4.3.0 has written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.archives import unpack


@pytest.fixture(scope="session")
def kafka_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directories of two of a Kafka's controllers, and what its tools print of them; its README.md tells more."""
    directory = tmp_path_factory.mktemp("kafka")
    unpack(Path(__file__).with_name("kafka-4.3-metadata.tar.gz"), directory)
    return directory / "kafka-4.3-metadata"
