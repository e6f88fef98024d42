"""What the configuration files of nodes and brokers have in common: TOML with Kafka's dotted keys.

A dotted key is nested tables in TOML (`node.id = 1` is `id` in table `node`); quoted ("node.id" = 1), dotted and
nested all mean the same here. Of two keys of which one begins with the other, such as `max.connections` and
`max.connections.per.ip`, TOML wants the shorter one quoted.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from kraftbase.errors import ConfigurationError


def read_toml(path: Path, whose: str) -> dict[str, Any]:
    """The document in a file; `whose` names its owner, such as a node's. Raises ConfigurationError, which does not name
    the file.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigurationError(f"there is no such file; give the path of {whose} TOML file") from None
    except OSError as error:
        raise ConfigurationError(f"it cannot be read ({error.strerror}); check the path and its permissions") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"it is not TOML: {error}; correct the file") from None
    except ValueError:  # Python reads no integer of more than 4300 digits
        raise ConfigurationError("a number in it has more digits than any setting allows; correct the file") from None


def flattened(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every value with its dotted key. Raises RecursionError."""
    for name, value in table.items():
        key = prefix + name
        if isinstance(value, dict):
            yield from flattened(value, key + ".")
        else:
            yield key, value


def no_setting(key: str, known: Collection[str]) -> ConfigurationError:
    """The error for an unknown key."""
    nearest = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    advice = f"did you mean {nearest[0]}?" if nearest else f"the keys are {', '.join(known)}"
    return ConfigurationError(f"{key} is not a setting; {advice}")


def toml_value(value: object) -> str:
    """A value as TOML writes it."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            return json.dumps(value, ensure_ascii=False)  # its escapes are TOML's too
        case list() | tuple():
            return "[" + ", ".join(map(toml_value, value)) + "]"
        case int() if value.bit_length() > 64:
            return hex(value)  # Python writes no integer of more than 4300 digits in decimal
        case _:
            return str(value)
