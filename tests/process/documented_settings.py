"""The defaults of settings, as pages show them."""

from __future__ import annotations

from typing import Final

from kraftlog.broker.settings import STATIC_CONFIGS
from kraftlog.config.settings import SETTING_BY_KEY
from kraftlog.controller.controller_config import ControllerConfig
from raft.core.config import QuorumConfig
from raft.storage.segmented_log import LogConfig
from snapshot.log_start_policy import LogStartConfig
from statemachine.store.snapshot_generator import SnapshotConfig
from statemachine.words.config_definitions import BROKER_CONFIGS, TOPIC_CONFIGS

SECTIONS: Final = {
    "quorum": QuorumConfig(),
    "log": LogConfig(),
    "snapshots": SnapshotConfig(),
    "log_start": LogStartConfig(),
    "controller": ControllerConfig(),
}


def default_of(key: str) -> str:
    """The default in the code, as in a file; KeyError if there is no such setting."""
    if key not in SETTING_BY_KEY:
        return {**BROKER_CONFIGS, **TOPIC_CONFIGS, **STATIC_CONFIGS}[key].default
    setting = SETTING_BY_KEY[key]
    value = getattr(SECTIONS[setting.section], setting.field)
    if value is None:
        return str(setting.none) or "none"
    return str(value).lower() if isinstance(value, bool) else str(value)
