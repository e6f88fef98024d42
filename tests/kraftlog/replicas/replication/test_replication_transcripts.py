"""Transcripts of replication: `transcripts/*.txt`, rewritten by `pytest --rewrite-transcripts`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import transcripts
from tests.kraftlog.replicas.replication.replication_commands import Commands

FILES = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
async def test_the_transcript_is_what_happens(path: Path, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    await transcripts.check(path, Commands(tmp_path).run, rewrite=pytestconfig.getoption("rewrite_transcripts"))
