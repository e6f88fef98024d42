"""Settings that a controller refuses."""

from __future__ import annotations

import pytest

from kraftlog.controller.controller_config import ControllerConfig


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("broker_session_timeout_ms", 1),
        ("leader_imbalance_check_interval_seconds", 1),
        ("unclean_election_check_interval_ms", 1),
        ("metadata_max_idle_interval_ms", 0),
    ],
)
def test_an_interval_that_would_never_end_or_never_pause_is_refused(name: str, least: int) -> None:
    config = ControllerConfig(**{name: least})  # type: ignore[arg-type]
    assert getattr(config, name) == least
    with pytest.raises(ValueError, match=f"{name} is {least - 1}; it must be at least {least}"):
        ControllerConfig(**{name: least - 1})  # type: ignore[arg-type]
