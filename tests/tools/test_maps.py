"""The maps of datapath/ and ctrl/: every function and folder that they name exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Page -> the folder that its paths and its folders are below.
PAGES = {"datapath/README.md": ROOT / "datapath", "ctrl/README.md": ROOT / "ctrl" / "careful"}
WORDS_MAX = 920
#: `file: function`, in one line.
_NAMED = re.compile(r"`([\w./]+\.(?:c|h|py)): ([\w.]+)`")
_QUOTED = re.compile(r"`([^`]*)`")
_PATH = re.compile(r"[\w.]+(?:/[\w.]+)*/[\w.]+\.(?:c|h|py|md)")
_FOLDER = re.compile(r"^\| `([\w/]+)/` \|", re.M)

pages = pytest.mark.parametrize("page", PAGES)


def _python_names(body: list[ast.stmt], outer: str = "") -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield outer + node.name
            if isinstance(node, ast.ClassDef):
                yield from _python_names(node.body, f"{outer}{node.name}.")


@cache
def _has(path: Path, name: str) -> bool:
    """Reports whether the file defines the function; in C, a declaration is not enough."""
    if not path.is_file():
        return False
    text = path.read_text()
    if path.suffix == ".py":
        return name in _python_names(ast.parse(text).body)
    return bool(re.search(rf"^(?:\w[^\n;={{}}]*\b)?{name}\([^;{{}}]*\)\s*\{{", text, re.M))


def _found(page: str, name: str) -> Path:
    """Returns the file: a path starts below the page's folder, or at the top."""
    below = PAGES[page] / name
    return below if below.exists() else ROOT / name


@pages
def test_page__each_function_is_in_its_file(page: str) -> None:
    named = _NAMED.findall((ROOT / page).read_text())
    assert len(named) > 40
    assert [one for one in named if not _has(_found(page, one[0]), one[1])] == []


@pages
def test_page__each_file_exists(page: str) -> None:
    quoted = [one.partition(": ")[0] for one in _QUOTED.findall((ROOT / page).read_text())]
    paths = {one for one in quoted if _PATH.fullmatch(one)}
    assert len(paths) > 20
    assert sorted(one for one in paths if not _found(page, one).is_file()) == []


@pages
def test_page__no_entry_is_broken_over_lines(page: str) -> None:
    assert [one for one in _QUOTED.findall((ROOT / page).read_text()) if "\n" in one] == []


@pages
def test_page__names_each_folder_and_no_other(page: str) -> None:
    base = PAGES[page]
    folders = {
        str(file.parent.relative_to(base))
        for file in base.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    # include/careful is the only folder of include/.
    folders = {"include" if one == "include/careful" else one for one in folders} - {"."}
    assert set(_FOLDER.findall((ROOT / page).read_text())) == folders


@pages
def test_page__is_short(page: str) -> None:
    words = re.findall(r"\S*\w\S*", (ROOT / page).read_text())  # the frame of a table is none
    assert len(words) <= WORDS_MAX


def test_readme__links_both_pages() -> None:
    text = (ROOT / "README.md").read_text()
    assert [page for page in PAGES if f"]({page})" not in text] == []


def test_has__a_call_or_a_declaration_is_no_definition(tmp_path: Path) -> None:
    path = tmp_path / "a.c"
    path.write_text(
        "int called(void);\nstatic int\ndefined(int a,\n\tint b)\n{\n\tif (called()) {\n\t}\n}\n"
    )
    assert _has(path, "defined")
    assert not _has(path, "called")
