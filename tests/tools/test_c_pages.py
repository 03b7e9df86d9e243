"""The C API has a manual page for each exported function, and man accepts them."""

from __future__ import annotations

import importlib
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def c_pages(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "tools" / "gen"))
    return importlib.import_module("c_pages")


def test_functions__are_those_that_are_exported(c_pages: ModuleType) -> None:
    found = [one.name for one in c_pages.functions()]
    assert set(found) == c_pages.exported()
    assert len(found) == len(set(found))


def test_page__agrees_with_the_header(c_pages: ModuleType) -> None:
    (one,) = (one for one in c_pages.functions() if one.name == "careful_region_add")
    page = c_pages.page(one, c_pages.structs())
    assert r"careful_region_add \- Registers a region" in page
    assert "struct careful_region {" in page
    assert "the only peer that may, or CAREFUL_ANY_PEER" in page
    assert "#include <careful/careful.h>" in page


def test_pages__man_takes_them(c_pages: ModuleType, tmp_path: Path) -> None:
    if not shutil.which("man") or not shutil.which("groff"):
        pytest.skip("man and groff are not installed")
    count = c_pages.write(tmp_path)
    pages = sorted(tmp_path.rglob("*.3"))
    assert count == len(pages) == 1 + len(c_pages.exported())
    for page in pages:
        done = subprocess.run(
            ["groff", "-man", "-ww", "-Tutf8", "-z", str(page)], capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, ""), page
