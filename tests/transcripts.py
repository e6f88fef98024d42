"""Transcripts: text files of commands and their output, which read as conversations.

A file begins with comments (`#`): what it shows, and the rules. Then come blocks: one or more commands, a line `----`,
their output, and an empty line.

    advance 2 to election timeout
    ----
    2 unattached -> prospective, epoch 0
    2->1 PreVote epoch 0, log end 0 (epoch 0)

How to write a transcript: write the comments and the commands, with `----` and an empty line behind each block, and run
`pytest --rewrite-transcripts` on the module of tests that reads it. That writes the output into the file. Then read the
file as a reviewer: each line must be right by docs/rules. Commit it when it is. From then on a run without the flag
fails, with a diff, when a line comes out differently. After a change that is meant, rewrite, and review the diff of the
files as you would the code.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from difflib import unified_diff
from pathlib import Path

import pytest

SEPARATOR = "----"


@dataclass
class Block:
    """Comments, commands and what is expected of them; without commands it is comments only."""

    comments: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)

    def text(self, output: list[str]) -> str:
        lines = [*self.comments]
        if self.commands:
            lines += [*self.commands, SEPARATOR, *(output or ["ok"])]
        return "\n".join(lines) + "\n"


def blocks(text: str) -> Iterator[Block]:
    """The blocks of a file, without the outputs."""
    for part in text.strip().split("\n\n"):
        block = Block()
        for line in part.strip().splitlines():
            if line == SEPARATOR:
                break
            (block.comments if line.startswith("#") else block.commands).append(line)
        yield block


async def check(path: Path, run: Callable[[str], Awaitable[list[str]]], *, rewrite: bool) -> None:
    """Run all commands of the file; with `rewrite` write their output into it, else fail if it differs.

    `run` takes one command, and gives the lines of its output.
    """
    expected = path.read_text()
    parts = []
    for block in blocks(expected):
        output = []
        for command in block.commands:
            try:
                output += await run(command)
            except Exception as error:
                error.add_note(f"in {path.name}, at the command: {command}")
                raise
        parts.append(block.text(output))
    actual = "\n".join(parts)
    if rewrite:
        path.write_text(actual)
    elif actual != expected:
        diff = unified_diff(expected.splitlines(), actual.splitlines(), "expected", "actual", lineterm="", n=8)
        pytest.fail(f"{path.name} came out differently (pytest --rewrite-transcripts):\n" + "\n".join(diff), False)
