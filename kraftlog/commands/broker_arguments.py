"""The settings of `kraftlog brokers run`: from its options, and from a file for those that are not given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ConfigurationError
from kraftlog.broker.settings import BrokerSettings
from kraftlog.commands.admin import parse_configs
from kraftlog.config.broker_file import BrokerFile, load_broker_file
from statemachine.query.descriptions import BrokerListener

LOG_LEVEL: Final = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOptions:
    """The options, parsed; None or empty where one was not given."""

    nodes: tuple[Endpoint, ...] = ()
    broker_id: int | None = None
    listeners: tuple[BrokerListener, ...] = ()
    advertised: tuple[BrokerListener, ...] = ()
    rack: str | None = None
    directory: Path | None = None
    log_dirs: tuple[Path, ...] = ()


def given_configs(texts: Sequence[str]) -> BrokerFile:
    """The values of `--config`: each is `KEY=VALUE`, and one may be a path, which has no `=`, or a `/` before it.

    Raises ConfigurationError.
    """
    paths = [text for text in texts if _is_path(text)]
    if len(paths) > 1:
        raise ConfigurationError(f"{paths[0]!r} and {paths[1]!r} are both files; give one")
    configs = parse_configs(text for text in texts if not _is_path(text))
    return load_broker_file(Path(paths[0]), configs) if paths else BrokerFile(configs=configs)


def _is_path(text: str) -> bool:
    key, separator, _ = text.partition("=")
    return not separator or "/" in key


def broker_settings(options: BrokerOptions, file: BrokerFile) -> BrokerSettings:
    """The settings of the broker. Raises ConfigurationError."""
    broker_id = options.broker_id if options.broker_id is not None else file.broker_id
    if broker_id is None:
        raise _missing("--id", "node.id")
    listeners = options.listeners or file.listeners
    if not listeners:
        raise _missing("--endpoint", "listeners")
    return BrokerSettings(
        broker_id=broker_id,
        directory=options.directory or file.directory or Path(f"broker-{broker_id}"),
        listeners=listeners,
        advertised=options.advertised or file.advertised,
        log_dirs=options.log_dirs or file.log_dirs,
        rack=options.rack if options.rack is not None else file.rack,
        configs=file.configs,
    )


def nodes_to_ask(options: BrokerOptions, file: BrokerFile) -> tuple[Endpoint, ...]:
    """The nodes of the cluster. Raises ConfigurationError."""
    nodes = options.nodes or file.nodes
    if not nodes:
        raise _missing("--bootstrap-server", "controller.quorum.bootstrap.servers")
    return nodes


def _missing(option: str, key: str) -> ConfigurationError:
    """The error for a required setting that neither an option nor the file has."""
    return ConfigurationError(f"{option} is missing; give it, or {key} in a file that --config names")
