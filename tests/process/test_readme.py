"""Every command and Python block in the README, the tour and the page on embedding does what the text says."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from kraftbase.endpoint import Endpoint
from kraftlog.cli.main import app
from tests.docs.test_paths import CODE, FENCED
from tests.kraftlog.command_line import Run, environment
from tests.paths import ROOT
from tests.process.test_operations_pages import shell
from tests.process.test_restore_cluster import write_config
from tests.process.test_up import up
from tests.raft.nodes import free_port

README = (ROOT / "README.md").read_text()
EMBEDDING = (ROOT / "docs" / "embedding.md").read_text()
NODES = (ROOT / "docs" / "operations" / "nodes.md").read_text()
TOUR = (ROOT / "docs" / "operations" / "local-cluster.md").read_text()

AN_OBSERVER = 4


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


LISTENER, WATCHER, READER = blocks(EMBEDDING, "python")


@contextmanager
def program(code: str, directory: Path) -> Iterator[subprocess.Popen[str]]:
    """A block as a program, until the end of the block."""
    arguments = [sys.executable, "-u", "-c", code]
    with subprocess.Popen(
        arguments, cwd=directory, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def says(process: subprocess.Popen[str], words: str) -> str:
    """What it says up to the line that has the words; fails if it ends before."""
    said = ""
    assert process.stdout is not None
    for line in process.stdout:
        said += line
        if words in line:
            return said
    raise AssertionError(said)


@pytest.mark.process
@pytest.mark.timeout(400)
def test_the_five_commands_of_the_readme_in_a_directory_of_their_own(tmp_path: Path) -> None:
    """All but the installation, which is there: `.venv` is the one that runs this test."""
    (tmp_path / ".venv").symlink_to(sys.prefix)
    first, second = blocks(README, "sh")
    install, start = first.splitlines()
    assert install == "make install"
    program, command, *options = shlex.split(start)
    assert (program, command, options[-2:]) == (".venv/bin/kraftlog", "up", ["--dir", "mycluster"])
    with up(tmp_path / options[-1], *options[:-2]) as (_, addresses):
        printed = shell(second, tmp_path, addresses, tmp_path / "mycluster")
    assert "Created topic orders with 6 partitions, replication factor 3." in printed
    assert printed.endswith("\nhello\n")


@pytest.mark.process
@pytest.mark.timeout(400)
def test_the_tour_of_a_cluster_and_a_listener_of_it(tmp_path: Path, run: Run) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with up(tmp_path / "mycluster", "--voters", 3, "--observers", 2, "--brokers", 3) as (_, addresses):
        [commands] = blocks(TOUR, "sh")
        printed = shell(commands, elsewhere, addresses, tmp_path / "mycluster")
        assert "Created topic orders with 6 partitions, replication factor 3." in printed
        assert "retention.ms=3600000" in printed
        assert re.search(r"^Records: 1000$", printed, re.MULTILINE)
        assert printed.endswith("Start it: kraftlog up --dir restored\n")
        with program(LISTENER.replace("HOST:PORT", addresses.split(",")[0]), elsewhere) as process:
            assert "orders" in says(process, "orders")


@pytest.mark.process
@pytest.mark.timeout(400)
def test_what_the_page_on_embedding_shows(tmp_path: Path, run: Run) -> None:
    with up(tmp_path / "mycluster", "--voters", 1, "--brokers", 1) as (_, addresses):
        at = ("--bootstrap-server", addresses)
        host, port = addresses.rsplit(":", 1)
        leader = Endpoint(host, int(port))
        here = Endpoint("localhost", free_port())
        config = write_config(tmp_path / "node-4.toml", AN_OBSERVER, here, {1: leader})
        cluster_id = run("quorum", "describe", "--status", *at, "--output", "json").json()["ClusterId"]
        assert run("format", "--config", config, "--cluster-id", cluster_id).code == 0
        with program(WATCHER, tmp_path) as process:
            says(process, "partitions: 0")
            reader = READER.replace('"localhost", 9091', f'"{host}", {port}').replace("9094", str(here.port))
            assert reader.count("909") == 0
            done = subprocess.run(
                [sys.executable, "-c", reader], env=environment(), capture_output=True, text=True, timeout=60
            )
            assert (done.returncode, done.stderr) == (0, "")
            assert "orders" in done.stdout
            assert "->" in says(process, "->")


@pytest.mark.process
@pytest.mark.timeout(400)
def test_three_voters_by_hand(tmp_path: Path) -> None:
    [shown] = blocks(NODES, "toml")
    ports = {9091 + index: free_port() for index in range(3)}
    for node_id in (1, 2, 3):
        text = shown.replace("node.id = 1", f"node.id = {node_id}").replace('"node-1"', f'"node-{node_id}"')
        text = text.replace('listeners = "localhost:9091"', f'listeners = "localhost:{9090 + node_id}"')
        (tmp_path / f"node-{node_id}.toml").write_text(_at_free_ports(text, ports))
    formatting, starting, looking, asking = blocks(NODES, "sh")
    addresses = f"localhost:{ports[9091]}"
    assert shell(_at_free_ports(formatting, ports), tmp_path, addresses, tmp_path).count("Formatted") == 3
    assert starting == "kraftlog start --config node-1.toml\n"
    assert asking == "kraftlog node status\n"
    with _started(tmp_path, [1, 2, 3]):
        while "leader" not in _asked(tmp_path, addresses):
            pass  # the test's time limit ends it
        assert "NodeId" in shell("kraftlog quorum describe --replication", tmp_path, addresses, tmp_path)
    looked = shell(looking, tmp_path, addresses, tmp_path)
    assert "node-1 is sound" in looked


def _at_free_ports(text: str, ports: dict[int, int]) -> str:
    return re.sub(r"localhost:(90\d\d)", lambda found: f"localhost:{ports[int(found[1])]}", text)


def _asked(directory: Path, addresses: str) -> str:
    asked = subprocess.run(
        [sys.executable, "-m", "kraftlog", "node", "status", "--bootstrap-server", addresses],
        cwd=directory,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    return asked.stdout if asked.returncode == 0 else ""


@contextmanager
def _started(directory: Path, node_ids: Sequence[int]) -> Iterator[None]:
    arguments = [
        [sys.executable, "-m", "kraftlog", "start", "--config", f"node-{node_id}.toml"] for node_id in node_ids
    ]
    nodes = [
        subprocess.Popen(line, cwd=directory, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for line in arguments
    ]
    try:
        yield
    finally:
        for node in nodes:
            node.terminate()
        for node in nodes:
            node.wait(30)


def test_the_commands_that_are_named_exist() -> None:
    """Also those in code amid prose."""
    groups = {group.name for group in app.registered_groups}
    commands = {command.name for command in app.registered_commands}
    pages = (README, TOUR, EMBEDDING)
    code = "\n".join(found for page in pages for found in (*FENCED.findall(page), *CODE.findall(FENCED.sub("", page))))
    named = set(re.findall(r"(?<!from )kraftlog ([a-z-]+)", code))
    assert {"up", "produce", "sql"} <= named
    assert named <= groups | commands, named - groups - commands
