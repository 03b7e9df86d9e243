"""Calls `static inline` functions of our headers from Python, for property tests.

Compiles a header's own declarations into a cffi module, so nothing is declared twice, and the tests
run the compiled code.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from cffi import FFI

DATAPATH = Path(__file__).resolve().parents[2] / "datapath"
_TYPES = "typedef uint32_t __u32;\n"
_STRUCT = re.compile(r"^struct \w+ \{.*?^\};", re.MULTILINE | re.DOTALL)
_ENUM = re.compile(r"^enum \{.*?^\};", re.MULTILINE | re.DOTALL)
_FUNCTION = re.compile(r"^static inline ([^{;]+?)\n\{", re.MULTILINE)


def functions(header: Path) -> list[str]:
    """Returns a header's inline functions for FFI.cdef()."""
    return [f"{one.group(1)};" for one in _FUNCTION.finditer(header.read_text())]


def declarations(header: Path) -> str:
    """Returns a header's structs, constants and inline functions for FFI.cdef()."""
    text = header.read_text()
    found = [one.group(0) for kind in (_ENUM, _STRUCT) for one in kind.finditer(text)]
    return "\n".join([*found, *functions(header)])


def bind(cdef: str, includes: Sequence[str], folder: Path) -> tuple[Any, Any]:
    """Compiles a module. Returns cffi's `ffi` and `lib`.

    Args:
        cdef: the declarations, from functions() and declarations().
        includes: headers, relative to datapath/ or datapath/include/.
        folder: of the build.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc)")
    ffi = FFI()
    ffi.cdef(_TYPES + cdef)
    ffi.set_source("inline_c_module", "".join(f'#include "{one}"\n' for one in includes))
    source, built = folder / "module.c", folder / "inline_c_module.so"
    ffi.emit_c_code(str(source))
    paths = [DATAPATH, DATAPATH / "include", Path(sysconfig.get_paths()["include"])]
    where = [f"-I{path}" for path in paths]
    command = [compiler, "-O2", "-shared", "-fPIC", *where, str(source), "-o", str(built)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    spec = importlib.util.spec_from_file_location("inline_c_module", built)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ffi, module.lib
