"""tools/lint/house.py finds a circle, a use of a layer above, and too much weight."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools" / "lint"))

import house


def test_circles__finds_each_and_no_more() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a", "e"}, "e": {"d"}, "f": {"a"}}
    assert sorted(map(sorted, house.circles(graph))) == [["a", "b", "c"], ["d", "e"]]


def test_beyond__names_a_use_of_a_layer_above() -> None:
    graph = {"link/tx.c": {"engine/am.c", "device/xsk/xsk_port.c"}, "engine/am.c": {"link/tx.c"}}
    assert list(house.forbidden(graph, 0, "/", house.FOLDERS)) == [
        "link/tx.c uses engine/am.c: link may not use engine"
    ]
    graph = {"careful.model.plan": {"careful.units", "careful.cli.main"}}
    assert list(house.forbidden(graph, 1, ".", house.PACKAGES)) == [
        "careful.model.plan uses careful.cli.main: model may not use cli"
    ]


def test_main__fails_where_the_code_is_heavier(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["house.py"])
    monkeypatch.setattr(house, "WEIGHTS", {"ctrl": (("ctrl",), 3)})
    assert house.main() == 1
    assert "more than 3" in capsys.readouterr().out


def test_main__fails_where_more_data_is_untyped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["house.py"])
    monkeypatch.setattr(house, "ANY_MAX", 3)
    assert house.main() == 1
    assert "uses, more than 3" in capsys.readouterr().out


def test_link__layers_above_see_one_short_header() -> None:
    folder = house.ROOT / "datapath"
    uses = [
        one.relative_to(folder)
        for one in folder.rglob("*.[ch]")
        if '#include "link/link_private.h"' in one.read_text()
    ]
    assert {one.parts[0] for one in uses} == {"link"}
    assert len((folder / "link" / "link.h").read_text().splitlines()) <= 200


def test_top__has_what_the_design_names() -> None:
    argv = ["git", "ls-files", "-z"]
    done = subprocess.run(argv, cwd=house.ROOT, capture_output=True, text=True, check=True)
    top = {name.partition("/")[0] for name in filter(None, done.stdout.split("\0"))}
    files = {".ci", ".clang-format", ".clang-tidy", ".gitignore"}
    files |= {"LICENSE", "README.md", "pyproject.toml"}
    assert top == files | {"ctrl", "datapath", "ebpf", "tests", "tools"}
