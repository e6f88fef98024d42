"""Plots resources over time: as an SVG file, and as a row of blocks for a terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

from kraftlog.chaos.soak.bounds_checker import Point
from kraftlog.chaos.soak.limits import WAL_BYTES_MAX
from kraftlog.chaos.soak.samples import FileKind

WIDTH, HEIGHT = 960, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 150, 40, 40
COLOURS: Final = {
    FileKind.LOG: "#1f77b4",
    FileKind.SNAPSHOTS: "#2ca02c",
    FileKind.DATABASE: "#9467bd",
    FileKind.WAL: "#d62728",
    FileKind.UNFINISHED: "#ff7f0e",
    FileKind.DAMAGED: "#8c564b",
    FileKind.SMALL: "#7f7f7f",
}
PROCESS_COLOURS: Final = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b")
PANEL_HEIGHT, PANEL_GAP = 190, 34
LOWEST_BYTES: Final = 1024
TIME_MARKS: Final = 6
BLOCKS: Final = " ▁▂▃▄▅▆▇█"


def svg(points: Sequence[Point], title: str, marks: Sequence[tuple[float, str]] = ()) -> str:
    """Plot the most bytes of any node per kind of file over time, on a logarithmic scale from 1 KiB on.

    `marks` are times with labels, drawn as vertical lines. A dashed line is the bound of the write-ahead log.
    """
    end = max((point.at_seconds for point in points), default=1.0) or 1.0
    most = max((size for point in points for size in point.file_bytes.values()), default=0)
    top = 2 ** math.ceil(math.log2(max(most, WAL_BYTES_MAX) * 2))

    def x(seconds: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * seconds / end

    def y(size: float) -> float:
        share = math.log(max(size, LOWEST_BYTES) / LOWEST_BYTES) / math.log(top / LOWEST_BYTES)
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"',
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="20" font-size="14">{escape(title)}</text>',
    ]
    size = LOWEST_BYTES
    while size <= top:
        lines.append(_line(LEFT, y(size), WIDTH - RIGHT, y(size), "#ddd"))
        lines.append(f'<text x="{LEFT - 6}" y="{y(size) + 4:.1f}" text-anchor="end">{_size(size)}</text>')
        size *= 8
    for number in range(TIME_MARKS + 1):
        seconds = end * number / TIME_MARKS
        lines.append(f'<text x="{x(seconds):.1f}" y="{HEIGHT - 18}" text-anchor="middle">{seconds:.0f} s</text>')
    for seconds, word in marks:
        lines.append(_line(x(seconds), TOP, x(seconds), HEIGHT - BOTTOM, "#999"))
        lines.append(f'<text x="{x(seconds) + 3:.1f}" y="{TOP - 4}" fill="#666">{escape(word)}</text>')
    lines.append(_line(LEFT, y(WAL_BYTES_MAX), WIDTH - RIGHT, y(WAL_BYTES_MAX), COLOURS[FileKind.WAL], dashes="6 4"))
    for row, (kind, colour) in enumerate(COLOURS.items()):
        path = " ".join(f"{x(point.at_seconds):.1f},{y(point.file_bytes[kind]):.1f}" for point in points)
        lines.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{path}"/>')
        lines.append(f'<text x="{WIDTH - RIGHT + 10}" y="{TOP + 16 * (row + 1)}" fill="{colour}">{kind}</text>')
    return "\n".join([*lines, "</svg>", ""])


def panels(
    found: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]],
    title: str,
    marks: Sequence[tuple[float, str]] = (),
) -> str:
    """Plot a panel for each figure, one below the other: a line for each process, on a linear scale from 0 on.

    `found` has the points, seconds and values, by figure and process. A figure whose name ends with "bytes" is shown in
    MiB. `marks` are times with labels, drawn as vertical lines.
    """
    end = max((at for lines in found.values() for points in lines.values() for at, _ in points), default=1.0) or 1.0
    height = PANEL_HEIGHT * len(found) + TOP + BOTTOM
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"',
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="20" font-size="14">{escape(title)}</text>',
    ]
    for row, (name, lines) in enumerate(found.items()):
        top = TOP + row * PANEL_HEIGHT
        drawn += _panel(name, lines, top, end)
        for seconds, word in marks:
            x = LEFT + (WIDTH - LEFT - RIGHT) * seconds / end
            drawn.append(_line(x, top, x, top + PANEL_HEIGHT - PANEL_GAP, "#999"))
            drawn.append(f'<text x="{x + 3:.1f}" y="{top - 4}" fill="#666">{escape(word)}</text>')
    for number in range(TIME_MARKS + 1):
        x = LEFT + (WIDTH - LEFT - RIGHT) * number / TIME_MARKS
        seconds = end * number / TIME_MARKS
        drawn.append(f'<text x="{x:.1f}" y="{height - 18}" text-anchor="middle">{seconds:.0f} s</text>')
    return "\n".join([*drawn, "</svg>", ""])


def _panel(name: str, lines: Mapping[str, Sequence[tuple[float, float]]], top: int, end: float) -> list[str]:
    bottom = top + PANEL_HEIGHT - PANEL_GAP
    is_bytes = name.endswith("bytes")
    most = max((value for points in lines.values() for _, value in points), default=0) or 1
    drawn = [f'<text x="{WIDTH - RIGHT + 10}" y="{top + 12}">{escape(name)}</text>']
    for share in (0.0, 0.5, 1.0):
        y = bottom - (bottom - top) * share
        label = f"{share * most / 1024**2:.0f} MiB" if is_bytes else f"{share * most:.0f}"
        drawn.append(_line(LEFT, y, WIDTH - RIGHT, y, "#ddd"))
        drawn.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    for row, (process, points) in enumerate(lines.items()):
        colour = PROCESS_COLOURS[row % len(PROCESS_COLOURS)]
        path = " ".join(
            f"{LEFT + (WIDTH - LEFT - RIGHT) * at / end:.1f},{bottom - (bottom - top) * value / most:.1f}"
            for at, value in points
        )
        drawn.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.2" points="{path}"/>')
        drawn.append(
            f'<text x="{WIDTH - RIGHT + 10}" y="{top + 12 + 16 * (row + 1)}" fill="{colour}">{escape(process)}</text>'
        )
    return drawn


def blocks(values: Sequence[float], width: int) -> str:
    """Return one block per interval, whose height is the largest value in it in proportion to the largest of all."""
    if not values:
        return ""
    width = min(width, len(values))
    largest = max(values)
    stretches = [values[len(values) * n // width : len(values) * (n + 1) // width] for n in range(width)]
    return "".join(BLOCKS[math.ceil(max(stretch) / largest * 8) if largest else 0] for stretch in stretches)


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, dashes: str = "none") -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-dasharray="{dashes}"/>'
    )


def _size(size: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size} {unit}"
        size //= 1024
    return f"{size} GiB"
