"""The runner of transcripts: a difference fails, and the flag writes it down."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import transcripts

TEXT = """\
# It counts.

add 1
add 2
----
1
3

# Nothing is shown.
forget
----
ok
"""


class Counter:
    def __init__(self) -> None:
        self.sum = 0

    async def run(self, command: str) -> list[str]:
        if command == "forget":
            self.sum = 0
            return []
        self.sum += int(command.removeprefix("add "))
        return [str(self.sum)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "counts.txt"
    path.write_text(TEXT)
    return path


async def test_a_transcript_of_what_happens_passes(path: Path) -> None:
    await transcripts.check(path, Counter().run, rewrite=False)
    assert path.read_text() == TEXT


async def test_a_difference_fails_with_its_lines_and_changes_nothing(path: Path) -> None:
    path.write_text(TEXT.replace("\n3\n", "\n4\n"))
    with pytest.raises(pytest.fail.Exception, match=r"counts.txt(?s:.)*\n-4\n\+3\n"):
        await transcripts.check(path, Counter().run, rewrite=False)
    assert "\n4\n" in path.read_text()


async def test_the_flag_writes_the_output_and_keeps_comments_and_commands(path: Path) -> None:
    path.write_text("# It counts.\n\nadd 1\nadd 2\n----\n\n# Nothing is shown.\nforget\n----\n7\n")
    await transcripts.check(path, Counter().run, rewrite=True)
    assert path.read_text() == TEXT


async def test_a_command_that_fails_is_named_and_nothing_is_written(path: Path) -> None:
    path.write_text(TEXT.replace("add 2", "add two"))
    with pytest.raises(ValueError, match="two") as raised:
        await transcripts.check(path, Counter().run, rewrite=True)
    assert raised.value.__notes__ == ["in counts.txt, at the command: add two"]
    assert "1\n3\n" in path.read_text()
