"""The plot is well-formed, and shows what was measured."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from kraftlog.chaos.soak.bounds_checker import Point
from kraftlog.chaos.soak.plot import COLOURS, HEIGHT, PANEL_HEIGHT, TOP, WIDTH, blocks, panels, svg
from kraftlog.chaos.soak.samples import FileKind

SVG = "{http://www.w3.org/2000/svg}"


def point(at_seconds: float, wal: int) -> Point:
    return Point(at_seconds, {**dict.fromkeys(FileKind, 0), FileKind.WAL: wal})


def test_every_kind_has_a_line_within_the_picture() -> None:
    points = [point(0.0, 0), point(1.0, 1 << 20), point(2.0, 1 << 34)]
    root = ElementTree.fromstring(svg(points, "a <title>", [(1.0, "with & without")]))
    lines = root.findall(f"{SVG}polyline")
    assert len(lines) == len(COLOURS) == len(FileKind)
    for line in lines:
        places = [tuple(map(float, place.split(","))) for place in line.attrib["points"].split()]
        assert len(places) == 3
        assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in places)
    wal = lines[list(COLOURS).index(FileKind.WAL)].attrib["points"].split()
    heights = [float(place.split(",")[1]) for place in wal]
    assert heights == sorted(heights, reverse=True)  # more bytes are further up
    assert heights[0] > heights[1] > heights[2]
    words = [text.text for text in root.findall(f"{SVG}text")]
    assert {"a <title>", "with & without", *FileKind} <= set(words)


def test_a_run_without_a_sample_has_a_picture_too() -> None:
    ElementTree.fromstring(svg([], "nothing"))


@pytest.mark.parametrize(
    ("values", "width", "expected"),
    [
        ([], 8, ""),
        ([0, 0], 8, "  "),
        ([0, 4, 8], 8, " ▄█"),
        ([0, 1, 8, 2], 2, "▁█"),
        ([8] * 100, 4, "████"),
    ],
)
def test_blocks_are_as_high_as_their_values(values: list[float], width: int, expected: str) -> None:
    assert blocks(values, width) == expected


def test_each_figure_has_a_panel_and_each_process_a_line_in_it() -> None:
    found = {
        "resident bytes": {"broker 101": [(0.0, 0.0), (2.0, 3.0 * 1024**2)], "node 1": [(0.0, 0.0), (2.0, 0.0)]},
        "descriptors": {"broker 101": [(0.0, 7.0), (2.0, 70.0)]},
    }
    root = ElementTree.fromstring(panels(found, "a <title>", [(1.0, "with & without")]))
    lines = [
        [tuple(map(float, place.split(","))) for place in line.attrib["points"].split()]
        for line in root.findall(f"{SVG}polyline")
    ]
    assert len(lines) == 3
    for panel, line in zip((0, 0, 1), lines, strict=True):
        top = TOP + panel * PANEL_HEIGHT
        assert all(0 <= x <= WIDTH and top <= y < top + PANEL_HEIGHT for x, y in line)
    assert lines[0][0][1] > lines[0][1][1]  # more is further up
    words = [text.text for text in root.findall(f"{SVG}text")]
    assert {"a <title>", "with & without", "broker 101", "3 MiB", "70", "2 s"} <= set(words)


def test_a_run_without_a_sample_has_panels_too() -> None:
    ElementTree.fromstring(panels({"descriptors": {}}, "nothing"))
