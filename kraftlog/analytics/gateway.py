"""Starts the Java process that Spark runs in, and connects PySpark to it.

PySpark's own launcher forks and then runs Python in the child. In a process that has used gRPC, this child sometimes
crashes before it becomes Java (measured: 1 of 12 times under load). This launcher runs no Python code in the child, so
Python can use vfork, which is safe. It uses PySpark's interface for a Java that was started elsewhere:
`PYSPARK_GATEWAY_PORT` and `PYSPARK_GATEWAY_SECRET`.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from py4j.java_gateway import JavaGateway  # type: ignore[import-untyped]

from kraftbase.errors import ConfigurationError

START_TIMEOUT_SECONDS: Final = 120
_POLL_SECONDS: Final = 0.05
_NOTICE: Final = "WARNING: Using incubator modules"
_PORT: Final = "PYSPARK_GATEWAY_PORT"
_SECRET: Final = "PYSPARK_GATEWAY_SECRET"  # noqa: S105 - the name of a variable


def start_java(settings: Mapping[str, str]) -> JavaGateway:
    """A Java with these Spark settings. It ends when this process ends. Raises ConfigurationError if it does not start.

    Call it once in a process: PySpark keeps what it is connected to.
    """
    from pyspark.java_gateway import launch_gateway

    process, port, secret = _launch(settings)
    os.environ |= {_PORT: str(port), _SECRET: secret}
    try:
        gateway: JavaGateway = launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        del os.environ[_PORT], os.environ[_SECRET]
    gateway.proc = process  # Java ends when its standard input does, so this process must hold it
    return gateway


def _launch(settings: Mapping[str, str]) -> tuple[subprocess.Popen[bytes], int, str]:
    """Start Java and wait until it reports where it listens."""
    with tempfile.TemporaryDirectory(prefix="kraftlog-spark-") as directory, _java_errors() as errors:
        connection = Path(directory) / "connection"
        process = subprocess.Popen(  # noqa: S603 - PySpark's own launcher script
            [_spark_submit(), *(f"--conf={name}={value}" for name, value in settings.items()), "pyspark-shell"],
            stdin=subprocess.PIPE,
            stderr=errors,
            env=os.environ | {"SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(connection)},
            start_new_session=True,  # Ctrl-C is for this process, and does not end it
        )
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while not connection.is_file():
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                process.communicate()
                raise ConfigurationError(f"Spark's Java ended with status {process.returncode}; see its standard error")
            time.sleep(_POLL_SECONDS)
        port, secret_bytes = struct.unpack_from(">ii", data := connection.read_bytes())
        return process, port, data[8 : 8 + secret_bytes].decode()


def _spark_submit() -> str:
    import pyspark

    home = os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent
    return str(Path(home) / "bin" / "spark-submit")


@contextmanager
def _java_errors() -> Iterator[int]:
    """Yield a standard error for Java whose lines appear on this process's, without Java's usual first notice."""
    reading, writing = os.pipe()
    threading.Thread(target=_pass_on, args=(reading,), name="spark-errors", daemon=True).start()
    try:
        yield writing
    finally:
        os.close(writing)


def _pass_on(reading: int) -> None:
    with os.fdopen(reading, errors="replace") as lines:
        for line in lines:
            if not line.startswith(_NOTICE):
                sys.stderr.write(line)
