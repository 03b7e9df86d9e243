"""Loads the project's programs, most of them without a suffix, as modules."""

from __future__ import annotations

import importlib.machinery
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load_tool(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Loads a program by its path, or a scenario by `bench NAME`, with its modules in reach."""
    if name.startswith("bench "):
        bench = ROOT / "tools" / "bench"
        (path,) = bench.glob(f"scenarios/*/{name.split()[1]}.py")
        monkeypatch.syspath_prepend(str(bench))
    else:
        path = ROOT / name
    monkeypatch.syspath_prepend(str(path.parent))
    loader = importlib.machinery.SourceFileLoader(path.name, str(path))
    spec = importlib.util.spec_from_loader(path.name, loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
