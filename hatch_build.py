"""Compiles the loop that reads records, where a C compiler and Python.h are there; without them an install goes on.

Cython makes C of `kraftlog/kafka/record_loop.py`, as it stands, and of the types in `record_loop.pxd`. The module that
comes of it has a name of its own and the CRC of both sources, so that Python never takes it for a later version of the
source: `kraftlog.kafka.record_reader` compares. An editable install has it beside its source.
"""

from __future__ import annotations

import shutil
import sysconfig
import tempfile
import zlib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = Path("kraftlog") / "kafka"
SOURCE = "record_loop"
COMPILED = "compiled_record_loop"
CHECKED_C = {
    "language_level": "3",
    "annotation_typing": False,  # types are in the .pxd; Python's annotations mean objects
    "boundscheck": True,
    "wraparound": False,  # a negative position is an error, not one from the end
    "overflowcheck": True,
}


class CustomBuildHook(BuildHookInterface[Any]):
    """Adds the compiled module to a wheel, or to the directory of an editable install."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, or say why not."""
        package, name = Path(self.root) / PACKAGE, f"{COMPILED}{sysconfig.get_config_var('EXT_SUFFIX')}"
        self._made = tempfile.TemporaryDirectory()
        made = Path(self._made.name)
        try:
            compile_loop(package, made)
        except Exception as error:
            self.app.display_warning(
                f"records will be read by Python, which takes longer: nothing was compiled: {error}"
            )
            return
        if version == "editable":
            new = package / f"{name}.new"
            shutil.copyfile(made / PACKAGE / name, new)
            new.replace(package / name)  # as programs that run have the one before in their memory
            return
        build_data["force_include"][str(made / PACKAGE / name)] = str(PACKAGE / name)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """The wheel has what it needs."""
        self._made.cleanup()


def compile_loop(package: Path, made: Path) -> None:
    """Compile the loop of a package into the same package below `made`. Raises whatever Cython and setuptools raise."""
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension

    source, types = (package / f"{SOURCE}.py").read_bytes(), (package / f"{SOURCE}.pxd").read_bytes()
    crc = f"\n\nSOURCE_CRC = {zlib.crc32(source + types)}\n"
    directory = made / PACKAGE
    directory.mkdir(parents=True)
    for parent in (directory.parent, directory):
        (parent / "__init__.py").touch()
    (directory / f"{COMPILED}.py").write_bytes(source + crc.encode())
    (directory / f"{COMPILED}.pxd").write_bytes(types)
    name = ".".join((*PACKAGE.parts, COMPILED))
    extension = Extension(name, [str(directory / f"{COMPILED}.py")], extra_compile_args=["-O2", "-g0"])
    modules = cythonize([extension], compiler_directives=CHECKED_C, build_dir=str(made / "c"), quiet=True)
    command = Distribution({"ext_modules": modules}).get_command_obj("build_ext")
    command.build_lib, command.build_temp = str(made), str(made / "o")
    command.ensure_finalized()
    command.run()
