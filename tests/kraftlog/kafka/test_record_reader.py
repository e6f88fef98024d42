"""Which of the two loops reads records."""

from __future__ import annotations

import ast
import re
import shutil
import sys
import sysconfig
import zlib
from pathlib import Path
from types import ModuleType

import pytest

from kraftlog.kafka import record_loop, record_reader
from kraftlog.kafka.record_reader import COMPILED_MODULE, INTERPRETED, compiled_loop, source_crc

SOURCE = Path(record_loop.__file__)


def can_compile() -> bool:
    """Whether there are a C compiler and Python's headers, as `hatch_build.py` needs them."""
    compiler = str(sysconfig.get_config_var("CC")).split()[0]
    return shutil.which(compiler) is not None and (Path(sysconfig.get_path("include")) / "Python.h").exists()


def test_a_machine_that_can_compile_reads_records_with_the_compiled_loop() -> None:
    """An installation that failed to compile would be noticed by nothing else."""
    if not can_compile():
        pytest.skip("there is no C compiler, or no Python.h")
    assert compiled_loop() is not None, "there is no loop compiled from the sources as they are: make .venv/installed"
    assert record_reader.loop.is_compiled


def test_every_variable_of_the_loop_has_its_type() -> None:
    """One without is a Python object in the compiled loop, which takes ten times as long and is right nevertheless."""
    types = SOURCE.with_suffix(".pxd").read_text()
    functions = [node for node in ast.parse(SOURCE.read_text()).body if isinstance(node, ast.FunctionDef)]
    assert len(functions) >= 4
    for function in functions:
        (part,) = [part for part in types.split("\n\n") if re.search(rf"\b{function.name}\(", part)]
        names = {
            node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        names |= {argument.arg for argument in function.args.args}
        assert {name for name in names if not re.search(rf"\b{name}\b", part)} == set(), function.name


def stub(crc: int | None) -> ModuleType:
    module = ModuleType(COMPILED_MODULE)
    module.__dict__.update(SOURCE_CRC=crc, read_heads=record_loop.read_heads, summarize=record_loop.summarize)
    return module


def test_a_loop_that_was_compiled_from_other_sources_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    crc = zlib.crc32(SOURCE.read_bytes() + SOURCE.with_suffix(".pxd").read_bytes())
    monkeypatch.setitem(sys.modules, COMPILED_MODULE, stub(crc))
    assert compiled_loop() is not None
    monkeypatch.setitem(sys.modules, COMPILED_MODULE, stub(crc ^ 1))
    assert compiled_loop() is None


def test_without_a_compiled_loop_python_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, COMPILED_MODULE, None)
    assert compiled_loop() is None
    assert INTERPRETED.name == "interpreted"


def test_a_changed_source_or_changed_types_make_another_crc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for suffix in (".py", ".pxd"):
        shutil.copy(SOURCE.with_suffix(suffix), tmp_path)
    copy = tmp_path / SOURCE.name
    spec = record_loop.__spec__
    assert spec is not None
    monkeypatch.setattr(spec, "origin", str(copy))
    crc = source_crc()
    assert crc is not None
    for changed in (copy, copy.with_suffix(".pxd")):
        with changed.open("a") as file:
            file.write("\n")
        assert source_crc() not in (crc, None)
    copy.with_suffix(".pxd").unlink()
    assert source_crc() is None
    monkeypatch.setitem(sys.modules, COMPILED_MODULE, stub(None))
    assert compiled_loop() is None
