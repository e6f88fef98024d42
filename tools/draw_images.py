"""Draw the pictures of the README in docs/images: `python tools/draw_images.py [DIRECTORY]`.

They are checked in; tests/docs/test_images.py draws them again and compares. Each has its own light background, so that
it is readable on a dark page, too. The two latencies are those of docs/figures.md.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
IMAGES: Final = ROOT / "docs" / "images"
LATENCIES: Final = re.compile(r"acknowledged to visible, mean: ([\d.]+) ms with Fetch 17, ([\d.]+) ms with Fetch 18")
"""The first match in docs/figures.md counts."""

INK, GREY, GROUND, EDGE = "#1f2328", "#59636e", "#ffffff", "#d1d9e0"
BLUE, GREEN, ORANGE, SAND = "#ddf4ff", "#dafbe1", "#fff1e5", "#f6f8fa"
WIDTH: Final = 760


class Box(NamedTuple):
    """A rectangle with lines of text in it, the first of them bold; all in pixels."""

    x: int
    y: int
    width: int
    height: int
    fill: str
    lines: tuple[str, ...]


class Arrow(NamedTuple):
    """A line with a head at its end, and a text beside it at (`text_x`, `text_y`), which may be empty."""

    points: tuple[tuple[int, int], ...]
    text: str = ""
    text_x: int = 0
    text_y: int = 0


BOXES: Final = (
    Box(20, 20, 430, 46, SAND, ("Kafka's clients", "produce and consume, unchanged")),
    Box(20, 126, 130, 62, ORANGE, ("broker 101", "partition logs", "on its disk")),
    Box(170, 126, 130, 62, ORANGE, ("broker 102", "partition logs", "on its disk")),
    Box(320, 126, 130, 62, ORANGE, ("broker 103", "partition logs", "on its disk")),
    Box(20, 272, 130, 62, BLUE, ("voter 1", "leader: decides,", "log on its disk")),
    Box(170, 272, 130, 62, BLUE, ("voter 2", "follower:", "log on its disk")),
    Box(320, 272, 130, 62, BLUE, ("voter 3", "follower:", "log on its disk")),
    Box(500, 272, 240, 62, GREEN, ("observers 4 and 5", "the same log and tables,", "without a vote")),
    Box(500, 126, 240, 62, SAND, ("your program, kraftlog, Spark", "a listener gets commits,", "SQL asks any node")),
)
ARROWS: Final = (
    Arrow(((235, 66), (235, 126)), "Kafka's protocol", 243, 101),
    Arrow(((170, 157), (150, 157))),
    Arrow(((300, 157), (320, 157))),
    Arrow(((235, 188), (235, 206), (85, 206), (85, 272)), "register, heartbeats, ISRs", 93, 244),
    Arrow(((385, 272), (385, 188)), "each commit", 393, 226),
    Arrow(((620, 272), (620, 188)), "each commit", 628, 226),
    Arrow(((85, 334), (85, 356), (235, 356), (235, 334))),
    Arrow(((235, 356), (385, 356), (385, 334))),
    Arrow(((385, 356), (620, 356), (620, 334)), "followers and observers fetch what the leader appends", 93, 374),
)


def parts() -> str:
    """Draw voters, observers, brokers and clients, and the requests between them."""
    body = [line for box in BOXES for line in _box(box)]
    for arrow in ARROWS:
        points = " ".join(f"{x},{y}" for x, y in arrow.points)
        body.append(f'<polyline points="{points}" fill="none" stroke="{INK}" marker-end="url(#head)"/>')
        if arrow.text:
            body.append(_text(arrow.text_x, arrow.text_y, arrow.text, GREY))
    title = "Clients use brokers; brokers ask the leading voter and follow the log that the voters replicate"
    return _picture(title, 388, body)


def latency(before: str, now: str) -> str:
    """Draw one bar for each version of Fetch, both on one scale that begins at zero."""
    left, longest = 180, 490
    body = [_text(20, 34, "From acknowledged to visible at every observer, mean", INK, bold=True)]
    for y, name, value, fill in ((52, "Fetch 17", before, "#8c959f"), (92, "Fetch 18 (KIP-1166)", now, "#1f883d")):
        width = max(1.0, round(longest * float(value) / float(before), 1))
        body.append(_text(20, y + 18, name, INK))
        body.append(f'<rect x="{left}" y="{y}" width="{width}" height="26" fill="{fill}"/>')
        body.append(_text(round(left + width) + 8, y + 18, f"{float(value):g} ms", INK, bold=True))
    title = f"Visible after {float(before):g} ms with Fetch 17, after {float(now):g} ms with Fetch 18"
    return _picture(title, 134, body)


def _box(box: Box) -> Iterator[str]:
    yield (
        f'<rect x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}" rx="6" fill="{box.fill}"'
        f' stroke="{GREY}"/>'
    )
    for row, line in enumerate(box.lines):
        yield _text(box.x + 10, box.y + 19 + 17 * row, line, INK, bold=row == 0)


def _text(x: int, y: int, text: str, fill: str, *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x}" y="{y}" fill="{fill}"{weight}>{escape(text)}</text>'


def _picture(title: str, height: int, body: list[str]) -> str:
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
            ' font-family="sans-serif" font-size="13">',
            "<!-- Drawn by tools/draw_images.py. Do not edit. -->",
            f"<title>{escape(title)}</title>",
            '<defs><marker id="head" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
            f'<path d="M0,0 L8,4 L0,8 z" fill="{INK}"/></marker></defs>',
            f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8" fill="{GROUND}" stroke="{EDGE}"/>',
            *body,
            "</svg>\n",
        )
    )


def main(directory: Path) -> None:
    """Write both pictures. Raises ValueError if docs/figures.md has no latencies."""
    found = LATENCIES.search((ROOT / "docs" / "figures.md").read_text())
    if found is None:
        raise ValueError("docs/figures.md has no line with the latencies of Fetch 17 and 18")
    (directory / "parts.svg").write_text(parts())
    (directory / "latency.svg").write_text(latency(found[1], found[2]))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES)
