"""The settings of a broker's shell, made from the settings of its process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from kraftbase.uuids import random_uuid
from kraftlog.broker.metadata.topic_configs import last_known_configs
from kraftlog.broker.settings import (
    CHECKPOINT_INTERVAL,
    HEARTBEAT_INTERVAL,
    HIGH_WATERMARK_CHECKPOINT_INTERVAL,
    PRODUCER_EXPIRATION_CHECK_INTERVAL,
    REPLICA_FETCH_BACKOFF,
    REPLICA_FETCH_BYTES,
    REPLICA_FETCH_BYTES_MIN,
    REPLICA_FETCH_RESPONSE_BYTES,
    REPLICA_FETCH_WAIT_MAX,
    REPLICA_LAG_MAX,
    RETENTION_CHECK_INTERVAL,
    BrokerSettings,
)
from kraftlog.broker.shell.broker_shell import ShellSettings
from kraftlog.broker.shell.directory_assignments import AssignmentsPace
from kraftlog.broker.shell.maintenance import MaintenanceIntervals
from kraftlog.broker.shell.membership import Pace
from kraftlog.broker.shell.opening import LogConfigs, LogsToOpen
from kraftlog.broker.shell.parts import PartsSettings
from kraftlog.replicas.replication.follower import FetchSettings
from kraftlog.storage.loading import RecoveryProgress


def shell_settings(
    settings: BrokerSettings, cluster_id: str, metadata_path: Path, on_progress: Callable[[RecoveryProgress], None]
) -> ShellSettings:
    """Return the shell's settings. `metadata_path` is the copy of the metadata; `on_progress` runs in a thread."""
    return ShellSettings(
        broker_id=settings.broker_id,
        rack=settings.rack,
        advertised=lambda ports: [settings.advertised_as(name, port) for name, port in ports.items()],
        logs=LogsToOpen(
            cluster_id=cluster_id,
            broker_id=settings.broker_id,
            paths=settings.log_paths,
            last_configs=partial(_last_configs, settings, metadata_path),
            new_id=random_uuid,
            on_progress=on_progress,
        ),
        parts=PartsSettings(
            broker_id=settings.broker_id,
            lag_max_ms=settings.whole(REPLICA_LAG_MAX),
            fetch=fetch_settings(settings),
            intervals=MaintenanceIntervals(
                retention_ms=settings.whole(RETENTION_CHECK_INTERVAL),
                checkpoint_ms=settings.whole(CHECKPOINT_INTERVAL),
                high_watermarks_ms=settings.whole(HIGH_WATERMARK_CHECKPOINT_INTERVAL),
                isr_ms=settings.whole(REPLICA_LAG_MAX) / 2,
                producers_ms=settings.whole(PRODUCER_EXPIRATION_CHECK_INTERVAL),
                room_ms=settings.whole(HEARTBEAT_INTERVAL),
            ),
            assignments=AssignmentsPace(),
        ),
        pace=Pace(settings.whole(HEARTBEAT_INTERVAL)),
    )


def fetch_settings(settings: BrokerSettings) -> FetchSettings:
    """Return the settings by which the broker's replicas fetch."""
    return FetchSettings(
        wait_max_ms=settings.whole(REPLICA_FETCH_WAIT_MAX),
        min_bytes=settings.whole(REPLICA_FETCH_BYTES_MIN),
        max_bytes=settings.whole(REPLICA_FETCH_BYTES),
        response_max_bytes=settings.whole(REPLICA_FETCH_RESPONSE_BYTES),
        backoff_ms=settings.whole(REPLICA_FETCH_BACKOFF),
    )


@contextmanager
def _last_configs(settings: BrokerSettings, metadata_path: Path) -> Iterator[LogConfigs]:
    with last_known_configs(metadata_path, settings.broker_id, settings.broker_configs) as configs:
        yield lambda partition: configs.log_config(partition.topic)
