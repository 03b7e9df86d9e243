"""The project's programs without an ending, as modules. Calls nobody."""

from __future__ import annotations

import importlib.machinery
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load_tool(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A program below tools/, with what stands beside it in reach as when it runs."""
    path = ROOT / "tools" / name
    monkeypatch.syspath_prepend(str(path.parent))
    loader = importlib.machinery.SourceFileLoader(path.name, str(path))
    spec = importlib.util.spec_from_loader(path.name, loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
