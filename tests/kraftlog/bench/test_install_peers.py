"""`make peers` installs what is missing, and fails with one line. Scripts stand in for the programs that download."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT

DOWNLOADS = "#!/bin/sh\n/usr/bin/touch etcd-server_3.4.23_amd64.deb\n"
UNPACKS = '#!/bin/sh\n/bin/mkdir -p "$3/usr/bin"\n/usr/bin/touch "$3/usr/bin/etcd"\n'
COPIES = """#!/bin/sh
for argument; do
  case "$argument" in -DoutputDirectory=*) /usr/bin/touch "${argument#*=}/kafka_2.13-4.3.0.jar" ;; esac
done
"""
APT_GET_CANNOT = """#!/bin/sh
echo 'E: Failed to fetch: Could not resolve'
echo 'E: more'
exit 100
"""
MAVEN_CANNOT = r"""#!/bin/sh
echo '[ERROR] '
printf '\033[0m[ERROR] Failed to fetch: Could not resolve\n'
echo '[ERROR] more'
exit 1
"""


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """The only directory on PATH, with programs that succeed."""
    directory = tmp_path / "bin"
    directory.mkdir()
    for name, script in (("apt-get", DOWNLOADS), ("dpkg", UNPACKS), ("mvn", COPIES)):
        replace(directory / name, script)
    return directory


def replace(path: Path, script: str) -> None:
    path.write_text(script)
    path.chmod(0o755)


def install(directory: Path, programs: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / "install_peers.py"), str(directory)]
    return subprocess.run(command, capture_output=True, text=True, env={"PATH": str(programs)}, timeout=60)


def test_both_are_installed_once(tmp_path: Path, programs: Path) -> None:
    directory = tmp_path / "peers"
    assert install(directory, programs).returncode == 0
    assert sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()) == [
        "etcd/usr/bin/etcd",
        "kafka/kafka_2.13-4.3.0.jar",
        "kafka/pom.xml",
        "spark/kafka_2.13-4.3.0.jar",
        "spark/spark.xml",
    ]
    for program in programs.iterdir():
        program.unlink()
    again = install(directory, programs)
    assert (again.returncode, again.stderr) == (0, "")


def test_a_kafka_of_another_list_of_artifacts_is_replaced_once_the_new_one_is_whole(
    tmp_path: Path, programs: Path
) -> None:
    directory = tmp_path / "peers"
    install(directory, programs)
    (directory / "kafka" / "pom.xml").write_text("another")
    (directory / "kafka" / "old.jar").touch()
    replace(programs / "mvn", MAVEN_CANNOT)
    assert install(directory, programs).returncode == 1
    assert (directory / "kafka" / "old.jar").exists()
    replace(programs / "mvn", COPIES)
    assert install(directory, programs).returncode == 0
    assert sorted(path.name for path in (directory / "kafka").iterdir()) == ["kafka_2.13-4.3.0.jar", "pom.xml"]


@pytest.mark.parametrize(
    ("program", "script", "peer"), [("apt-get", APT_GET_CANNOT, "etcd"), ("mvn", MAVEN_CANNOT, "kafka")]
)
def test_a_registry_that_cannot_be_reached_is_one_line_and_leaves_nothing_half_done(
    tmp_path: Path, programs: Path, program: str, script: str, peer: str
) -> None:
    replace(programs / program, script)
    failed = install(tmp_path / "peers", programs)
    assert failed.returncode == 1
    (line,) = failed.stderr.splitlines()
    assert line.startswith("error: ")
    assert "(Failed to fetch: Could not resolve)" in line
    assert "reachable?" in line
    assert peer not in {path.name for path in (tmp_path / "peers").iterdir()}


def test_a_program_that_is_missing_is_named_with_its_package(tmp_path: Path, programs: Path) -> None:
    (programs / "mvn").unlink()
    failed = install(tmp_path / "peers", programs)
    assert failed.stderr == "error: there is no mvn on PATH; install it, as root: apt-get install maven\n"
