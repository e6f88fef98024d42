"""Finds the installed peers: in the directory that `make peers` fills, or on PATH."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ETCD_PROGRAM: Final = Path("etcd/usr/bin/etcd")
"""The path of the program in the directory, after Debian's package etcd-server was unpacked into `etcd`."""
KAFKA_JARS: Final = Path("kafka")
VERSION_TIMEOUT_SECONDS: Final = 10.0

_KAFKA_JAR: Final = re.compile(r"kafka_2\.13-(?P<version>[0-9.]+)\.jar")
_ETCD_VERSION: Final = re.compile(r"^etcd Version: (?P<version>\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Etcd:
    """An installed etcd."""

    program: Path
    version: str


@dataclass(frozen=True, slots=True)
class Kafka:
    """The jars of a Kafka, and a Java to run them."""

    java: Path
    jars: Path
    version: str


@dataclass(frozen=True, slots=True)
class Peers:
    """The installed peers, and for each missing one the reason and how to install it."""

    etcd: Etcd | None
    kafka: Kafka | None
    missing: Mapping[str, str]


def find_peers(directory: Path) -> Peers:
    """Look in `directory` first; etcd and Java may also be on PATH."""
    missing = {}
    etcd = _find_etcd(directory)
    if etcd is None:
        missing["etcd"] = (
            f"there is no {directory / ETCD_PROGRAM}, and no etcd on PATH; install it: make peers,"
            " or as root: apt-get install etcd-server"
        )
    kafka = None
    jars, version = directory / KAFKA_JARS, _kafka_version(directory / KAFKA_JARS)
    java = shutil.which("java")
    if version is None:
        missing["Kafka"] = f"there is no kafka_2.13-*.jar in {jars}; install it: make peers"
    elif java is None:
        missing["Kafka"] = "there is no java on PATH; install it, as root: apt-get install openjdk-17-jre-headless"
    else:
        kafka = Kafka(Path(java), jars, version)
    return Peers(etcd, kafka, missing)


def etcd_version(output: str) -> str:
    """Return the version in the output of `etcd --version`, or "of unknown version"."""
    found = _ETCD_VERSION.search(output)
    return "of unknown version" if found is None else found["version"]


def _find_etcd(directory: Path) -> Etcd | None:
    program = directory / ETCD_PROGRAM
    on_path = shutil.which("etcd")
    if not program.is_file():
        if on_path is None:
            return None
        program = Path(on_path)
    said = subprocess.run(  # noqa: S603 (the user's program)
        [program.resolve(), "--version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_SECONDS, check=False
    )
    return Etcd(program.resolve(), etcd_version(said.stdout))


def _kafka_version(jars: Path) -> str | None:
    names = sorted(path.name for path in jars.glob("kafka_2.13-*.jar"))
    found = _KAFKA_JAR.fullmatch(names[-1]) if names else None
    return None if found is None else found["version"]
