"""What the version before left behind, and that version itself, from the project's history.

`cluster-2026-11-22.tar.gz` is the directory of a cluster that `kraftlog up --voters 3 --observers 1` of commit
`OLD_COMMIT` made: topics `orders` (3 partitions), `payments` (2), a snapshot on node 1, topic `shipments` (1).
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kraftlog.local.cluster_directory import ClusterDirectory, open_or_create
from tests.archives import unpack
from tests.paths import ROOT
from tests.raft.nodes import free_port

OLD_COMMIT = "d38c61b268b6"
OLD_TOPICS = {"orders": 3, "payments": 2, "shipments": 1}
NODE_IDS = (1, 2, 3, 4)


def old_directory(path: Path) -> ClusterDirectory:
    """The old cluster's directory, below `path`, at ports that are free here."""
    unpack(Path(__file__).with_name("cluster-2026-11-22.tar.gz"), path)
    directory = path / "cluster"
    (directory / "logs").mkdir()
    files = sorted(directory.glob("*.toml"))
    ports = {port for file in files for port in re.findall(r"127\.0\.0\.1:(\d+)", file.read_text())}
    new_ports = {port: str(free_port()) for port in ports}
    for file in files:
        file.write_text(re.sub(r"(?<=127\.0\.0\.1:)\d+", lambda match: new_ports[match[0]], file.read_text()))
    return open_or_create(directory)


def old_code(path: Path) -> Path:
    """The old version's packages. Skips the test where the project's history is not at hand."""
    archive = subprocess.run(
        ["git", "-C", ROOT, "archive", "--format=tar", OLD_COMMIT], capture_output=True, check=False
    )
    if archive.returncode != 0:
        pytest.skip(f"the history that has {OLD_COMMIT} is not here: {archive.stderr.decode().strip()}")
    path.mkdir()
    subprocess.run(["tar", "-x", "-C", path], input=archive.stdout, check=True)
    return path


def start_command_of(code: Path) -> list[str]:
    """How a node of the packages in `code` is started; the path of its configuration comes next.

    The first one keeps what it compiles in the directory, which is the test's own, for the others.
    """
    return [
        "env",
        "-u",
        "PYTHONDONTWRITEBYTECODE",
        f"PYTHONPATH={code}",
        sys.executable,
        "-P",
        "-m",
        "kraftlog",
        "start",
        "--stop-at-eof",
        "--config",
    ]
