"""A broker's configuration file: TOML, strict, with Kafka's keys, as a node's (`kraftlog.config.config`).

It may have everything that options of `kraftlog brokers run` set; options override the file. Each error names the key
and the value; the reader of a file adds its path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ConfigurationError
from kraftlog.broker.settings import STATIC_CONFIGS, check_given_config
from kraftlog.config.endpoints import NODE_ID_MAX
from kraftlog.config.listeners import parse_bound_listener, parse_listener
from kraftlog.config.setting_values import bootstrap_servers, directory, one_of, text, text_list, whole_number
from kraftlog.config.settings import LOG_LEVELS
from kraftlog.config.toml_files import flattened, no_setting, read_toml, toml_value
from statemachine.query.descriptions import BrokerListener
from statemachine.words.config_definitions import BROKER_CONFIGS

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFile:
    """The settings of a file; None or empty for what it does not set. Paths are relative to the file's directory."""

    broker_id: int | None = None
    nodes: tuple[Endpoint, ...] = ()
    directory: Path | None = None
    log_dirs: tuple[Path, ...] = ()
    listeners: tuple[BrokerListener, ...] = ()
    advertised: tuple[BrokerListener, ...] = ()
    rack: str | None = None
    log_level: str | None = None
    configs: Mapping[str, str] = field(default_factory=dict)
    """The others, by Kafka's names (`kraftlog.broker.settings`), with those that override them."""


def _listed(parse: Callable[[str], Value]) -> Callable[[object], tuple[Value, ...]]:
    return lambda value: tuple(map(parse, text_list(value)))


_FIELDS: Final[Mapping[str, tuple[str, Callable[[object], Any]]]] = {
    "node.id": ("broker_id", whole_number(0, NODE_ID_MAX)),
    "controller.quorum.bootstrap.servers": ("nodes", bootstrap_servers),
    "metadata.log.dir": ("directory", directory),
    "log.dirs": ("log_dirs", _listed(directory)),
    "listeners": ("listeners", _listed(parse_bound_listener)),
    "advertised.listeners": ("advertised", _listed(parse_listener)),
    "broker.rack": ("rack", text),
    "log.level": ("log_level", one_of(*LOG_LEVELS)),
}

KEYS: Final = (*_FIELDS, *STATIC_CONFIGS, *BROKER_CONFIGS)


def load_broker_file(path: Path, overrides: Mapping[str, str]) -> BrokerFile:
    """The settings of the file at `path`; `overrides` replace its configs. Raises ConfigurationError."""
    try:
        return parse_broker_file(read_toml(path, "a broker's"), path.resolve().parent, overrides)
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}") from None
    except RecursionError:
        raise ConfigurationError(f"{path}: it is nested deeper than any setting; correct the file") from None


def parse_broker_file(document: Mapping[str, Any], base: Path, overrides: Mapping[str, str]) -> BrokerFile:
    """The settings of a TOML document, with `overrides`; relative paths start at `base`. Raises ConfigurationError."""
    values: dict[str, Any] = {}
    configs: dict[str, str] = {}
    for key, value in flattened(document):
        if key not in KEYS:
            raise no_setting(key, KEYS)
        name, parse = _FIELDS.get(key, (key, _config_text))
        into = values if key in _FIELDS else configs
        if name in into:
            raise ConfigurationError(f"{key} is set twice; keep one of them")
        try:
            into[name] = parse(value)
        except ConfigurationError as error:
            raise ConfigurationError(f"{key} = {toml_value(value)}: {error}") from None
    for name, value in configs.items():
        check_given_config(name, value, {**configs, **overrides})
    if "directory" in values:
        values["directory"] = base / values["directory"]
    values["log_dirs"] = tuple(base / path for path in values.get("log_dirs", ()))
    return BrokerFile(**values, configs={**configs, **overrides})


def _config_text(value: object) -> str:
    """A config's value as Kafka writes it: TOML's numbers, booleans and lists are accepted, too."""
    match value:
        case bool():
            return str(value).lower()
        case str() | int() | float():
            return str(value)
        case list() if all(isinstance(part, str) for part in value):
            return ",".join(value)
    raise ConfigurationError("it must be text, a number, true or false, or a list of texts")
