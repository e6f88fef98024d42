"""`make dist`: what it builds works without a checkout, and the sdist has all that a wheel is built of."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path
from typing import Final

import pytest

from kraftlog import __version__
from tests.paths import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.process]

TOOLS: Final = Path(sys.executable).parent


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the sdist and the wheel that is built of it: that of `make dist`, if this is a part of it."""
    given = os.environ.get("KRAFTLOG_DIST")
    if given is not None:
        return ROOT / given
    directory = tmp_path_factory.mktemp("dist")
    build(directory)
    return directory


def build(directory: Path, *options: str) -> None:
    line = [TOOLS / "uv", "build", "--quiet", "--system-certs", "--python", sys.executable, "--out-dir", directory]
    subprocess.run([*line, *options, ROOT], check=True)


def the_wheel(directory: Path) -> Path:
    [wheel] = directory.glob(f"kraftlog-{__version__}-*.whl")
    return wheel


def contents(wheel: Path) -> dict[str, bytes]:
    """All but what a compiler made, and the list of sums of all files."""
    with zipfile.ZipFile(wheel) as files:
        return {name: files.read(name) for name in files.namelist() if not name.endswith((".so", "/RECORD"))}


def test_the_wheel_of_the_sdist_is_that_of_the_tree(dist: Path, tmp_path: Path) -> None:
    assert (dist / f"kraftlog-{__version__}.tar.gz").is_file()
    build(tmp_path, "--wheel")
    assert the_wheel(tmp_path).name == the_wheel(dist).name
    assert contents(the_wheel(tmp_path)) == contents(the_wheel(dist))


def test_the_wheel_runs_a_node_in_an_empty_environment(dist: Path, tmp_path: Path) -> None:
    """It has the dependencies of this one, by their directory: a checkout that is installed here is not found so."""
    home = tmp_path / "empty"
    venv.create(home, symlinks=True)
    python, kraftlog = home / "bin" / "python", home / "bin" / "kraftlog"
    install = [TOOLS / "uv", "pip", "install", "--quiet", "--offline", "--no-deps", "--python", python]
    subprocess.run([*install, the_wheel(dist)], check=True)
    [packages] = home.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))

    def ask(*line: object) -> str:
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
        asked = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
        assert (asked.returncode, asked.stderr) == (0, "")
        return asked.stdout

    assert ask(python, "-c", "import kraftlog; print(kraftlog.__file__)").startswith(str(packages))
    assert ask(kraftlog, "--version") == f"kraftlog {__version__}\n"
    compiled = ask(python, "-c", "from kraftlog.kafka.record_reader import loop; print(loop.is_compiled)")
    assert compiled == f"{'none-any' not in the_wheel(dist).name}\n"
    with subprocess.Popen(
        [kraftlog, "up", "--voters", "1", "--dir", tmp_path / "cluster"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            exported = next(line for line in process.stdout if "KRAFTLOG_BOOTSTRAP_SERVER=" in line)
            addresses = exported.strip().partition("=")[2]
            assert "leader" in ask(kraftlog, "node", "status", "--bootstrap-server", addresses)
        finally:
            process.terminate()
