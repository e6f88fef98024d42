"""The settings of a broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftlog.broker.settings import BrokerListener, BrokerSettings

LISTENERS = (BrokerListener("PLAINTEXT", "127.0.0.1", 0),)


@pytest.mark.parametrize(("log_dirs", "paths"), [((), ["broker/partitions"]), ((Path("a"), Path("/b")), ["a", "/b"])])
def test_log_directories_are_absolute_as_describe_log_dirs_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_dirs: tuple[Path, ...], paths: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = BrokerSettings(broker_id=1, directory=Path("broker"), listeners=LISTENERS, log_dirs=log_dirs)
    assert list(settings.log_paths) == [str(tmp_path / path) for path in paths]
