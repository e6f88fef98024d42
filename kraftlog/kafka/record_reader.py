"""Which loop reads the heads of records: the compiled one of `kraftlog.kafka.record_loop`, or that module itself."""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Callable
from importlib import import_module
from importlib.abc import ResourceLoader
from typing import Final, NamedTuple

from kraftlog.kafka import record_loop
from kraftlog.kafka.notation import Buffer

COMPILED_MODULE: Final = "kraftlog.kafka.compiled_record_loop"
"""`hatch_build.py` compiles it from `record_loop.py` and `record_loop.pxd`; `SOURCE_CRC` has the CRC of both."""


class Loop(NamedTuple):
    """The functions of `record_loop`."""

    is_compiled: bool
    read_heads: Callable[[Buffer, int, int, int, array[int], array[int], bytearray], tuple[int, int, int]]
    summarize: Callable[[array[int], array[int], int, int, int], tuple[int, int, int]]

    @property
    def name(self) -> str:
        """The name in log lines."""
        return "compiled" if self.is_compiled else "interpreted"


def source_crc() -> int | None:
    """Return the CRC of the present sources of the loop; None if they cannot be read."""
    spec = record_loop.__spec__
    if spec is None or spec.origin is None or not isinstance(spec.loader, ResourceLoader):
        return None
    try:
        source = spec.loader.get_data(spec.origin)
        types = spec.loader.get_data(spec.origin.removesuffix(".py") + ".pxd")
    except OSError:
        return None
    return zlib.crc32(source + types)


def compiled_loop() -> Loop | None:
    """Return the compiled loop; None if it does not exist, or was compiled from other sources than the present ones."""
    crc = source_crc()
    try:
        module = import_module(COMPILED_MODULE)
    except ImportError:
        return None
    if crc is None or crc != module.SOURCE_CRC:
        return None
    return Loop(True, module.read_heads, module.summarize)


INTERPRETED: Final = Loop(False, record_loop.read_heads, record_loop.summarize)
loop: Loop = compiled_loop() or INTERPRETED
