"""Reads a broker's log for the reports of `kraftlog.broker.loop_watch` on its event loop, and for fencings."""

from __future__ import annotations

import ast
import re
from collections import Counter
from typing import Final

from kraftlog.bench.figures import percentile
from kraftlog.broker.loop_watch import REPORT

_REPORT: Final = re.compile(rf"event='{REPORT}' longest_processor_ms=([0-9.]+) late_ms=(\{{[^}}]*\}})")
_FENCED: Final = re.compile("Broker [0-9]+ was fenced:")


def turns_in(text: str) -> dict[str, float]:
    """Return the longest turn in processor time, how late timers ran, and how often the broker was fenced."""
    late: Counter[int] = Counter()
    longest = 0.0
    for found in _REPORT.finditer(text):
        longest = max(longest, float(found[1]))
        late.update(ast.literal_eval(found[2]))
    ordered = sorted(late.elements())
    return {
        "turn_processor_ms": longest,
        "turn_late_ms_p999": float(percentile(ordered, 99.9)) if ordered else 0.0,
        "turn_late_ms": float(ordered[-1]) if ordered else 0.0,
        "looks": len(ordered),
        "fenced": len(_FENCED.findall(text)),
    }
