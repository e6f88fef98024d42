"""The values in a configuration file: each function takes a TOML value, or raises an error with what it must be.

The errors do not name the key or the value: the reader of the file adds them (`kraftlog.config.config`).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import cast

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ConfigurationError
from kraftbase.types import NodeId
from kraftlog.config.endpoints import parse_endpoint, parse_reachable_endpoint, parse_voter
from kraftlog.controller.operations.topics import CreateTopicPolicy
from snapshot.log_start_policy import LogStartPolicy


def whole_number(minimum: int, maximum: int = 2**63 - 1) -> Callable[[object], int]:
    """Accept whole numbers from `minimum` to `maximum`."""

    def parse(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
            limit = f"from {minimum} to {maximum}" if maximum < 2**31 else f"of at least {minimum}"
            raise ConfigurationError(f"it must be a whole number {limit}")
        return value

    return parse


def one_of(*choices: str | int) -> Callable[[object], str | int]:
    """Accept only these values."""

    def parse(value: object) -> str | int:
        if isinstance(value, bool) or not isinstance(value, (str, int)) or value not in choices:
            raise ConfigurationError(f"it must be one of {', '.join(map(str, choices))}")
        return value

    return parse


def number(minimum: float, maximum: float, *, none: object = None) -> Callable[[object], float | None]:
    """Accept numbers from `minimum` to `maximum`, and `none` as None."""

    def parse(value: object) -> float | None:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if is_number and value == none:
            return None
        if not isinstance(value, (int, float)) or not is_number or not minimum <= value <= maximum:
            otherwise = "" if none is None else f", or {none}"
            raise ConfigurationError(f"it must be a number from {minimum:g} to {maximum:,g}{otherwise}")
        return float(value)

    return parse


def true_or_false(value: object) -> bool:
    """Accept true and false."""
    if not isinstance(value, bool):
        raise ConfigurationError("it must be true or false, without quotes")
    return value


def text(value: object) -> str:
    """Accept text that is not empty."""
    if not isinstance(value, str) or not value.strip():
        raise ConfigurationError("it must be text, in quotes")
    return value


def text_list(value: object) -> list[str]:
    """Accept a list of texts, or one text with commas as Kafka writes lists. May be empty."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise ConfigurationError("it must be a list of texts, or one text with commas")
    return [part.strip() for part in parts if part.strip()]


def directory(value: object) -> Path:
    """Accept a path."""
    path = text(value)
    if "\0" in path:
        raise ConfigurationError("a path must not contain a NUL character")
    return Path(path).expanduser()


def listener(value: object) -> Endpoint:
    """Accept the address to listen on."""
    return parse_endpoint(text(value))


def optional_listener(value: object) -> Endpoint | None:
    """Accept the address to listen on, and an empty text as None."""
    return None if value == "" else listener(value)


def voters(value: object) -> tuple[tuple[NodeId, Endpoint], ...]:
    """Accept the voters."""
    return tuple(parse_voter(part) for part in text_list(value))


def bootstrap_servers(value: object) -> tuple[Endpoint, ...]:
    """Accept addresses of nodes."""
    return tuple(parse_reachable_endpoint(part) for part in text_list(value))


def create_topic_policy(value: object) -> CreateTopicPolicy | None:
    """Accept `module:name` of a policy, which is imported, and an empty text as None. The name is that of a function,
    or of a class whose constructor needs no arguments and whose instances can be called.
    """
    if value == "":
        return None
    module_name, separator, name = text(value).partition(":")
    if not separator or not all(part.isidentifier() for part in (*module_name.split("."), name)):
        raise ConfigurationError("it must be module:name, as in policies.topics:judge, or empty")
    try:
        policy = getattr(importlib.import_module(module_name), name)
        policy = policy() if isinstance(policy, type) else policy
    except Exception as error:
        raise ConfigurationError(f"it cannot be imported ({error!r}); correct it, or the Python path") from None
    if not callable(policy):
        raise ConfigurationError("it cannot be called with a topic; name a function, or a class with __call__")
    return cast(CreateTopicPolicy, policy)


def log_start_policy(value: object) -> LogStartPolicy:
    """Accept the name of a policy for the log's start."""
    return LogStartPolicy(str(one_of(*(policy.value for policy in LogStartPolicy))(value)))
