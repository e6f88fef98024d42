"""Generate kraftpb/ from proto/ with the pinned compiler: `python tools/generate_protocol.py [OUTPUT_DIRECTORY]`.

The generated code is checked in; tests/test_generated.py generates it again and compares.
"""

from __future__ import annotations

import sys
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
SCHEMAS = ROOT / "proto"
HEADER = '"""Generated from proto/ by tools/generate_protocol.py. Do not edit."""\n'


def generate(output: Path) -> None:
    """Write the messages, services and their type stubs below `output`; raises RuntimeError if the compiler fails."""
    sources = sorted(str(path) for path in SCHEMAS.rglob("*.proto"))
    builtin = str(Path(protoc.__file__).parent / "_proto")
    outputs = [f"--{kind}_out={output}" for kind in ("python", "grpc_python", "mypy", "mypy_grpc")]
    exit_code = protoc.main(["protoc", f"-I{SCHEMAS}", f"-I{builtin}", *outputs, *sources])
    if exit_code != 0:
        raise RuntimeError(f"protoc ended with exit code {exit_code}")
    for services in output.rglob("*_pb2_grpc.py"):
        if "class " not in services.read_text():
            services.unlink()
            services.with_suffix(".pyi").unlink(missing_ok=True)
    for package in (output / "kraftpb", output / "kraftpb" / "v1", output / "kraftpb" / "etcd"):
        (package / "__init__.py").write_text(HEADER)


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
