"""Install the peers of `kraftlog bench peers`: `python tools/install_peers.py DIRECTORY`, or `make peers`.

Debian's etcd-server is downloaded and unpacked; Maven copies the jars of Kafka and of Spark's Kafka source. None of
this needs root. The versions are those of the machine's Debian and of the files in tools/peers. An installed peer is
not fetched again, unless its file in tools/peers has changed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
POM = ROOT / "tools" / "peers" / "pom.xml"
SPARK_POM = ROOT / "tools" / "peers" / "spark.xml"
ETCD_PACKAGE = "etcd-server"
TIMEOUT_SECONDS = 600
MARKED = re.compile(r"(?:\x1b\[[0-9;]*m)*(?:E:|\[ERROR\]) *(?P<error>\S.*)")  # Maven may set its colour before


class InstallError(Exception):
    """A peer could not be installed. The message has the reason and a remedy."""


def install(directory: Path) -> None:
    """Install all peers in `directory`. Raises InstallError."""
    directory.mkdir(parents=True, exist_ok=True)
    _install(directory / "etcd", _unpack_etcd)
    for name, pom in (("kafka", POM), ("spark", SPARK_POM)):
        _install(directory / name, partial(_copy_jars, pom), is_current=partial(_is_of_pom, pom))


def _is_of_pom(pom: Path, jars: Path) -> bool:
    copy = jars / pom.name
    return copy.exists() and copy.read_bytes() == pom.read_bytes()


def _install(path: Path, fill: Callable[[Path], None], is_current: Callable[[Path], bool] = Path.exists) -> None:
    """Let `fill` fill a new directory, which is renamed to `path` when it is complete."""
    if is_current(path):
        print(f"{path} is installed already")
        return
    with tempfile.TemporaryDirectory(dir=path.parent) as name:
        new = Path(name) / path.name
        new.mkdir()
        fill(new)
        if path.exists():
            path.rename(Path(name) / "before")
        new.rename(path)
    print(f"{path} is installed")


def _unpack_etcd(path: Path) -> None:
    need("apt-get", "install etcd so that it is on PATH, and call: kraftlog bench peers")
    need("dpkg", "install etcd so that it is on PATH, and call: kraftlog bench peers")
    downloaded = path.parent
    call(
        ["apt-get", "download", ETCD_PACKAGE],
        downloaded,
        f"cannot download Debian's {ETCD_PACKAGE}",
        "is a Debian mirror reachable? As root: apt-get update",
    )
    (package,) = downloaded.glob(f"{ETCD_PACKAGE}_*.deb")
    call(["dpkg", "-x", package.name, path.name], downloaded, f"cannot unpack {package.name}", "is the disk full?")


def _copy_jars(pom: Path, path: Path) -> None:
    need("mvn", "install it, as root: apt-get install maven")
    call(
        ["mvn", "-B", "-q", "-f", str(pom), "dependency:copy-dependencies", "-DincludeScope=runtime",
         f"-DoutputDirectory={path.resolve()}"],
        path.parent,
        f"Maven cannot copy the jars of {pom.name}",
        "is a Maven repository reachable?",
    )  # fmt: skip
    shutil.copyfile(pom, path / pom.name)


def need(program: str, remedy: str) -> None:
    """Raise InstallError if the program is not on PATH."""
    if shutil.which(program) is None:
        raise InstallError(f"there is no {program} on PATH; {remedy}")


def call(command: Sequence[str], directory: Path, failure: str, remedy: str) -> None:
    """Run a command. Raises InstallError with the first error that it printed."""
    try:
        ended = subprocess.run(
            command, cwd=directory, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise InstallError(f"{failure}: {command[0]} does not end within {TIMEOUT_SECONDS} s; {remedy}") from None
    if ended.returncode != 0:
        raise InstallError(f"{failure} ({_first_error(ended.stdout + ended.stderr)}); {remedy}")


def _first_error(output: str) -> str:
    """Return the first line that apt-get or Maven marks as an error, else the last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    marked = [found["error"] for line in lines if (found := MARKED.match(line)) is not None]
    return [*marked, *reversed(lines), "it printed nothing"][0]


def main() -> int:
    """Install, and return the exit code."""
    try:
        install(Path(sys.argv[1]))
    except InstallError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
