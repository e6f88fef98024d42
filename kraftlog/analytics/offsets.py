"""The options of the data source: the export and its offsets, with the names and rules of Spark's Kafka source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kraftbase.errors import ApiError, ConfigurationError, ErrorCode
from kraftbase.types import Offset
from kraftlog.analytics.manifest import Manifest

PATH: Final = "path"
STARTING_OFFSETS: Final = "startingOffsets"
ENDING_OFFSETS: Final = "endingOffsets"
EARLIEST: Final = "earliest"
LATEST: Final = "latest"


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The user's options. The offsets are still words or digits: their meaning depends on the export."""

    path: str
    starting_offsets: str = EARLIEST
    ending_offsets: str = LATEST


def parse_options(options: Mapping[str, str]) -> ReadOptions:
    """The options, whose names may be written in any case.

    Raises ConfigurationError if the path is missing, or for an unknown option: ignoring a misspelt one would read
    everything.
    """
    names = (PATH, STARTING_OFFSETS, ENDING_OFFSETS)
    given = {name.lower(): value for name, value in options.items()}
    unknown = sorted(set(given) - {name.lower() for name in names})
    if unknown:
        raise ConfigurationError(f"unknown option {unknown[0]!r}; the options are {', '.join(names)}")
    path = given.get(PATH)
    if not path:
        raise ConfigurationError('no path was given; name the directory of the export: .load("DIR")')
    return ReadOptions(path, given.get(STARTING_OFFSETS.lower(), EARLIEST), given.get(ENDING_OFFSETS.lower(), LATEST))


def resolve_range(options: ReadOptions, manifest: Manifest) -> tuple[Offset, Offset]:
    """The offsets to read, from the first to the second (exclusive).

    `startingOffsets` is `earliest` (the default) or an offset, `endingOffsets` is `latest` (the default) or an offset,
    exclusive. Raises ConfigurationError for anything else, ApiError(OFFSET_OUT_OF_RANGE) outside the export.
    """
    start = _offset(STARTING_OFFSETS, options.starting_offsets, EARLIEST, manifest.start_offset)
    end = _offset(ENDING_OFFSETS, options.ending_offsets, LATEST, manifest.end_offset)
    for name, offset in ((STARTING_OFFSETS, start), (ENDING_OFFSETS, end)):
        if not manifest.start_offset <= offset <= manifest.end_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{name} is {offset}, the export is from {manifest.start_offset} to {manifest.end_offset}"
                " (exclusive); name an offset in it, or run the export again to get more",
            )
    if start > end:
        raise ConfigurationError(f"{STARTING_OFFSETS} is {start}, after {ENDING_OFFSETS}, which is {end}")
    return start, end


def _offset(name: str, text: str, word: str, meaning: Offset) -> Offset:
    if text.strip().lower() == word:
        return meaning
    if text.isascii() and text.isdigit():
        return Offset(int(text))
    raise ConfigurationError(f"{name} is {text!r}; it must be {word!r} or an offset of at least 0")
