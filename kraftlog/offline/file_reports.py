"""The findings for one file of a node."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

COLUMNS: Final = ("File", "Status", "Found")


class FileStatus(StrEnum):
    """The state of a file."""

    SOUND = "sound"
    MENDED = "mended"
    """As a crash may leave it: the next start repairs it, and nothing is lost."""
    DAMAGED = "damaged"


class Problem(NamedTuple):
    """A damaged stretch of a segment, or a frame that does not follow the previous one."""

    position: int
    end_position: int
    text: str


@dataclass(slots=True)
class FileReport:
    """One file, or one that is missing."""

    file: str
    """Its path within the node's directory."""
    status: FileStatus = FileStatus.SOUND
    found: str = ""
    reason: str = ""
    """Why the file is not sound, if that needs a sentence."""
    next_start: str = ""
    """What the next start does about the file; empty if nothing."""
    problems: list[Problem] = field(default_factory=list)

    def row(self) -> dict[str, Any]:
        """Everything, by name."""
        row: dict[str, Any] = {"File": self.file, "Status": str(self.status), "Found": self.found}
        if self.reason:
            row["Reason"] = self.reason
        if self.next_start:
            row["NextStart"] = self.next_start
        if self.problems:
            row["Problems"] = [
                {"From": problem.position, "To": problem.end_position, "Problem": problem.text}
                for problem in self.problems
            ]
        return row

    def lines(self) -> list[str]:
        """The lines shown to a user in addition to `found`."""
        lines = [f"bytes {problem.position} to {problem.end_position}: {problem.text}" for problem in self.problems]
        if self.reason:
            lines.append(self.reason)
        if self.next_start:
            lines.append(f"the next start {self.next_start}")
        return [f"{self.file}: {line}" for line in lines]


def is_sound(reports: Iterable[FileReport]) -> bool:
    """Whether nothing is damaged."""
    return all(report.status is not FileStatus.DAMAGED for report in reports)
