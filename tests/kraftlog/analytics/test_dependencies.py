"""What is missing is said in one line, and nothing is imported before it is needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kraftbase.errors import ConfigurationError
from kraftlog.analytics import dependencies
from kraftlog.analytics.dependencies import java_version, require_java, require_pyarrow, require_pyspark
from kraftlog.analytics.gateway import start_java
from kraftlog.analytics.session import local_spark
from tests.paths import ROOT

IMPORTS = """
import sys
from kraftlog.analytics import export, manifest, rendering, report, session, source
print([name for name in ("pyspark", "pyarrow", "py4j") if name in sys.modules])
"""


def test_neither_spark_nor_arrow_is_imported_before_it_is_needed():
    found = subprocess.run([sys.executable, "-c", IMPORTS], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime', 17),
        ('java version "1.8.0_452"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ("command not found", None),
    ],
)
def test_the_version_of_java_is_read_from_what_it_prints(text, version):
    assert java_version(text) == version


def java_that_prints(directory: Path, script: str) -> str:
    java = directory / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    return str(directory)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            """echo 'openjdk version "11.0.2"' >&2""",
            r"java is Java 11\. Spark needs Java 17: apt-get install openjdk-17",
        ),
        ("echo hello", r"of an unknown version\. Spark needs Java 17"),
        ("exit 3", r"java does not start .*\. Spark needs Java 17: apt-get install openjdk-17-jre-headless"),
    ],
)
def test_a_java_that_does_not_do_is_named(tmp_path, monkeypatch, script, message):
    monkeypatch.setenv("JAVA_HOME", java_that_prints(tmp_path, script))
    with pytest.raises(ConfigurationError, match=message):
        require_java()


def test_without_java_the_package_to_install_is_named(tmp_path, monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match=r"^Spark needs Java 17: apt-get install openjdk-17-jre-headless$"):
        require_java()


def test_a_java_of_version_17_does(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", java_that_prints(tmp_path, """echo 'openjdk version "17"' >&2"""))
    require_java()


def test_missing_packages_are_named(monkeypatch):
    monkeypatch.setattr(dependencies, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"the export needs pyarrow: pip install '\.\[spark\]'"):
        require_pyarrow()
    with pytest.raises(ConfigurationError, match=r"Spark needs pyspark: pip install '\.\[spark\]'"):
        require_pyspark()
    with pytest.raises(ConfigurationError, match="Spark needs pyspark"):
        local_spark()


def test_a_java_that_does_not_start_spark_is_said_so(tmp_path, monkeypatch):
    script = """case "$1" in -version) echo 'openjdk version "17"' >&2;; *) echo 'out of luck' >&2; exit 3;; esac"""
    monkeypatch.setenv("JAVA_HOME", java_that_prints(tmp_path, script))
    with pytest.raises(ConfigurationError, match=r"Spark's Java ended with status \d+; see its standard error"):
        start_java({"spark.master": "local[1]"})
