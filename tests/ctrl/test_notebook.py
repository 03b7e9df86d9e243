"""careful in notebooks: tables and bars in HTML, in which a peer's text is never HTML."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from careful import html, notebook
from careful.control.instance import choice, instances
from careful.control.instance import status as state
from careful.extras import MissingExtraError
from careful.files.options import Progress
from careful.jsonout import plain
from careful.model import BlackBox, load_shipped, plan
from careful.render.measuring import measure as report
from careful.render.tables import Table, alarm
from careful.transfer.result import Result
from fake_exchange import FakeExchange
from in_effect import IN_EFFECT, PEER

#: Hostile names of a peer, or of a file.
HOSTILE = "<script>alert('h2')</script>\x1b]0;\"&\x07"
TAGS = {"table", "caption", "thead", "tbody", "tr", "th", "td", "div", "b", "progress"}


class Read(HTMLParser):
    """Parses the page like a browser: tags, names of their attributes, and texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS
        assert {name for name, _ in attrs} <= {"style", "value", "max"}
        self.tags.append(tag)
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        assert data.isprintable() or data.isspace() or "\n" in data
        self.texts.append(data)


def read(shown: Any) -> Read:
    return Read(shown if isinstance(shown, str) else shown._repr_html_())


def test_rendered__escapes_a_peers_text() -> None:
    parts = [HOSTILE, "", Table(HOSTILE, (HOSTILE, "n"), [(alarm(HOSTILE), 3), ("x", 2.5)])]
    seen = read(html.rendered(parts))
    assert seen.tags.count("td") == 4
    assert "script" not in seen.tags
    assert sum("<script>alert('h2')</script>\\x1b]0;\"&\\x07" in one for one in seen.texts) == 4
    assert seen.texts[-2:] == ["x", "2.50"]
    assert seen.tags.count("b") == 1


@pytest.mark.parametrize("text", ["12", "-0.5", "1.5 ±0.2", "3 KiB"])
def test_table__has_numbers_on_the_right(text: str) -> None:
    assert "right" in html.table(html.Grid("", ("a",), [(text,)]))
    assert "right" not in html.table(html.Grid("", ("a",), [(f"h{text}",)]))


def test_status__shows_peers_and_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    one = replace(IN_EFFECT, peers=[replace(PEER, node=None, name=HOSTILE, state="failed")])
    monkeypatch.setattr(choice, "named_or_all", lambda *_: ["eth1"])
    monkeypatch.setattr(instances, "died", lambda: {"eth2": HOSTILE})
    monkeypatch.setattr(state, "gather", lambda *_: one)
    found = notebook.status()
    seen = read(found)
    assert {"peer", "credits", "failed", "192.168.100.102"} <= set(seen.texts)
    assert found.figures["instances"] == [plain(one)]
    assert "192.168.100.102" in str(found)
    assert seen.tags.count("b") >= 2


def test_plan__shows_itself() -> None:
    gam = load_shipped("gam")
    made = plan(gam, 4096, lp=False)
    seen = read(made)
    assert f"4096 bytes, {made.strategy}" in seen.texts
    assert str(made.fragments_count) in seen.texts
    assert {stage.name for stage in gam.stages} <= set(read(gam).texts)


def test_measured__is_a_table_and_makes_plans() -> None:
    found = FakeExchange().measure(seconds=1000)
    figures = found.figures()
    seen = notebook.Measured(report.blackbox_parts(found, HOSTILE), figures, found)
    assert str(seen) == report.blackbox_table(found, HOSTILE)
    assert "all but the bottleneck" in read(seen).texts
    assert isinstance(seen.model, BlackBox)
    assert "all stages" in read(seen.model).texts
    assert "bottleneck" in read(seen.model.plan(8192)).texts


def test_report__of_a_transfer_shows_failures() -> None:
    moved = Result(failures=[(HOSTILE, "no")], seconds=2.0)
    assert {"failed", "no", "files"} <= set(read(moved).texts)
    assert "failed" not in read(Result()).texts


class Shown:
    """Fakes IPython.display, and keeps the notebook's output."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.drawn: list[str] = []
        module = types.ModuleType("IPython.display")
        module.HTML = str  # type: ignore[attr-defined]
        module.display = lambda first, display_id: self  # type: ignore[attr-defined]
        package = types.ModuleType("IPython")
        package.__spec__ = types.SimpleNamespace()  # type: ignore[assignment]
        monkeypatch.setitem(sys.modules, "IPython", package)
        monkeypatch.setitem(sys.modules, "IPython.display", module)

    def update(self, one: str) -> None:
        self.drawn.append(one)


def test_progress__draws_now_and_then_and_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    shown, now = Shown(monkeypatch), [0.0]
    watch = notebook.progress(clock=lambda: now[0])
    for moved in range(100):
        now[0] += 0.01
        watch(Progress(0, 2, moved, 100, ""))
    assert 9 <= len(shown.drawn) <= 11
    watch(Progress(2, 2, 100, 100, HOSTILE))
    last = read(shown.drawn[-1])
    assert last.tags == ["progress"]
    assert '<progress value="100" max="100">' in shown.drawn[-1]
    assert "100 B of 100 B, 800 bit/s, 2 of 2 files <script>" in last.texts[-1]


def test_progress__of_empty_files_is_full() -> None:
    assert '<progress value="1" max="1">' in notebook.bar(Progress(1, 1, 0, 0, "empty"), 0.0)


#: Shows a bar and a result in IPython's shell, like a notebook's kernel.
SHOWS = """
from careful import notebook
from careful.files.options import Progress
from careful.transfer.result import Result
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
shell = InteractiveShell.instance()
with capture_output() as shown:
    watch = notebook.progress()
    watch(Progress(2, 2, 100, 100, "last"))
print([output.data["text/html"] for output in shown.outputs][1])
print(shell.display_formatter.format(Result(seconds=2.0))[0]["text/html"])
"""


def test_progress__in_the_shell_of_a_notebook(tmp_path: Path) -> None:
    pytest.importorskip("IPython")
    environment = {**os.environ, "IPYTHONDIR": str(tmp_path)}
    argv = [sys.executable, "-c", SHOWS]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr
    bar, report = done.stdout.split("\n", 1)
    assert bar.startswith('<progress value="100" max="100"></progress> 100 B of 100 B')
    assert "files" in read(report).texts


def test_progress__names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "IPython", None)  # type: ignore[arg-type]
    with pytest.raises(MissingExtraError, match=r"careful\[notebook\]"):
        notebook.progress()
