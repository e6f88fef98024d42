"""A broker from its start to its end: `broker_transcripts/*.txt` (`pytest --rewrite-transcripts`), and its states."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftbase.errors import InvariantViolation
from kraftlog.broker.shell.broker_states import BROKER_EDGES, Closed, Closing, Opening, Serving, check_broker_edge
from tests import transcripts
from tests.kraftlog.broker.shell.shell_commands import Commands

FILES = sorted((Path(__file__).parent / "broker_transcripts").glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
async def test_the_transcript_is_what_happens(path: Path, pytestconfig: pytest.Config) -> None:
    await transcripts.check(path, Commands().run, rewrite=pytestconfig.getoption("rewrite_transcripts"))


def test_a_state_follows_only_where_the_table_says_so() -> None:
    check_broker_edge(Opening(), Closing(None))
    with pytest.raises(InvariantViolation, match=r"from Opening\(\) to Serving\(\)"):
        check_broker_edge(Opening(), Serving())
    assert all(Closing in entered for left, entered in BROKER_EDGES.items() if left not in (Closing, Closed))
