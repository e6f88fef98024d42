"""What analytics needs beyond kraftlog itself, and the message when it is missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from kraftbase.errors import ConfigurationError

JAVA_VERSION_MIN: Final = 17
JAVA_MISSING: Final = "Spark needs Java 17: apt-get install openjdk-17-jre-headless"
_JAVA_TIMEOUT_SECONDS: Final = 30


def require_pyarrow() -> None:
    """Raise ConfigurationError unless pyarrow is installed."""
    _require("pyarrow", "the export")


def require_pyspark() -> None:
    """Raise ConfigurationError unless pyspark and pyarrow are installed."""
    _require("pyspark", "Spark")
    _require("pyarrow", "Spark")


def require_java() -> None:
    """Raise ConfigurationError unless there is a Java that Spark runs on. Starts it once to ask for its version."""
    java = _find_java()
    if java is None:
        raise ConfigurationError(JAVA_MISSING)
    try:
        answer = subprocess.run(  # noqa: S603 - the Java that Spark itself would start
            [java, "-version"], capture_output=True, text=True, timeout=_JAVA_TIMEOUT_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigurationError(f"{java} does not start ({error}). {JAVA_MISSING}") from None
    version = java_version(answer.stderr + answer.stdout)
    if version is None or version < JAVA_VERSION_MIN:
        raise ConfigurationError(f"{java} is Java {version or 'of an unknown version'}. {JAVA_MISSING}")


def java_version(text: str) -> int | None:
    """The major version in what `java -version` prints, None if there is none. Java 8 calls itself 1.8."""
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found.group(1)) if found else None


def _find_java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    if home:
        return str(Path(home) / "bin" / "java")
    return shutil.which("java")


def _require(package: str, user: str) -> None:
    if find_spec(package) is None:
        raise ConfigurationError(f"{user} needs {package}: pip install '.[spark]' in a checkout of kraftlog")
