"""What every command line tool says of itself, and what ours says of an installation that is not whole."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import kraftlog
from kraftlog.process.installation import OWN_MODULES
from tests.kraftlog.command_line import Run, command, environment, run
from tests.paths import ROOT

__all__ = ["run"]


def test_it_says_its_version(run: Run) -> None:
    assert run("--version").lines() == [f"kraftlog {kraftlog.__version__}"]


@pytest.mark.parametrize("arguments", [(), ("topics",), ("topics", "create")])
def test_help_has_a_short_name(run: Run, arguments: tuple[str, ...]) -> None:
    assert run(*arguments, "-h").lines() == run(*arguments, "--help").lines()


def test_it_writes_a_completion_for_the_shell_that_it_is_called_from() -> None:
    shell = ["bash", "-c", f"{shlex.join(command('--show-completion'))}; true"]
    ended = subprocess.run(shell, capture_output=True, text=True, env=environment())
    assert "_KRAFTLOG_COMPLETE" in ended.stdout, ended


@pytest.mark.parametrize("package", OWN_MODULES)
def test_a_package_that_another_distribution_has_overwritten_is_named(tmp_path: Path, package: str) -> None:
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").write_text("raise AssertionError('imported')\n")
    ended = subprocess.run(
        command("--version"),
        capture_output=True,
        text=True,
        env=environment(PYTHONPATH=f"{tmp_path}:{ROOT}"),
        cwd=tmp_path,
    )
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (1, "", 1), ended
    assert f"the package {package!r} that Python finds is not kraftlog's" in ended.stderr


@pytest.mark.parametrize("package", OWN_MODULES)
def test_a_file_of_the_users_own_in_the_place_of_a_package_fails_the_import_and_is_named(
    tmp_path: Path, package: str
) -> None:
    own = tmp_path / f"{package}.py"
    own.write_text("raise AssertionError('imported')\n")
    ended = subprocess.run(
        [sys.executable, "-c", "import kraftlog"],
        capture_output=True,
        text=True,
        env=environment(PYTHONPATH=str(ROOT)),
        cwd=tmp_path,
    )
    said = ended.stderr.splitlines()[-1]
    assert (ended.returncode, ended.stdout) == (1, ""), ended
    assert said.startswith(f"ImportError: the package {package!r} that Python finds is not kraftlog's but {own};")


def test_the_license_and_what_is_typed_are_in_the_tree() -> None:
    assert "Apache License" in (ROOT / "LICENSE").read_text()
    assert "kraftlog" in (ROOT / "NOTICE").read_text()
    for package in ("kraftbase", "kraftlog", "raft", "snapshot", "statemachine"):
        assert (ROOT / package / "py.typed").exists()


def test_a_command_does_not_import_what_shows_tracebacks_in_colours() -> None:
    """A third of a short command's time was that."""
    program = "from kraftlog.__main__ import run\ntry:\n run()\nfinally:\n import sys; print(sorted(sys.modules))"
    ended = subprocess.run(
        [sys.executable, "-c", program, "--version"], capture_output=True, text=True, env=environment()
    )
    assert "'structlog'" in ended.stdout, ended
    assert "'rich.traceback'" not in ended.stdout
