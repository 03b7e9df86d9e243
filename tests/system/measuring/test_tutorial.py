"""Runs the commands of `carefulctl help tutorial`, and compares their output with the page's."""

from __future__ import annotations

import re
import shlex
import signal
import statistics
from pathlib import Path

import pytest
from careful import man
from hosts import wait_for
from lab import TOOL, MakeLab

pytestmark = pytest.mark.lab

PAGE = man.source("tutorial")
ROOT = TOOL.parents[1]
MESSAGES_MS = r"2 KiB in ([\d.]+) ms"


def steps() -> list[tuple[list[str], list[str]]]:
    """Returns the page's commands and the output below each block of commands."""
    found: list[tuple[list[str], list[str]]] = []
    page = re.sub(r"^```python\n.*?^```$", "", PAGE, flags=re.M | re.S)
    for block in re.findall(r"^```\n(.*?)^```$", page, re.M | re.S):
        lines = block.replace("\\\n", "").splitlines()
        if lines[0].startswith("tools/"):
            found += [([line], []) for line in lines]
        else:
            found[-1][1].extend(lines)
    return [(shlex.split(line), output) for (line,), output in found]


def plain(text: str) -> str:
    """Returns the words of the output, without figures and lines of tables."""
    return " ".join(re.sub(r"[\d.]+(x\d+)?|─+", "", text).split())


def test_tutorial__output_is_the_pages(
    make_lab: MakeLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "78")  # a page's width without its indent
    (_, setup), *rest = steps()
    assert setup == []
    (make, _), *rest = rest
    assert make[:3] == ["tools/lab", "up", "--hops"]
    lab = make_lab(hops=ROOT / make[3], options=make[4:], measures_xdp=True)
    (tmp_path / "read.py").write_text(PAGE.partition("```python\n")[2].partition("```")[0])
    reads = tmp_path / "reads"

    def read_ms() -> float:
        """Returns the median of the next three lines of the program."""
        before = len(reads.read_text().splitlines())
        wait_for(lambda: len(reads.read_text().splitlines()) >= before + 4, "reads")
        lines = reads.read_text().splitlines()[before + 1 :]
        return statistics.median(float(*re.findall(MESSAGES_MS, line)) for line in lines)

    took_ms = []
    for words, expected in rest:
        if words[:2] == ["tools/lab", "down"]:
            break
        assert words[:2] == ["tools/lab", "exec"]
        if "read.py" in words:
            with reads.open("w") as out:
                reader = lab.start(words[2], *words[4:], cwd=tmp_path, stdout=out)
            expected = expected[:1]
        else:
            done = lab.run(words[2], *words[4:], cwd=tmp_path)
            printed = done.stdout + done.stderr
            said = plain(printed)
            for line in expected:
                if not re.fullmatch(MESSAGES_MS, line):
                    missing = [one for one in plain(line).split("…") if one not in said]
                    assert not missing, printed
        if "read.py" in words or words[5:7] == ["tune", "set"]:
            took_ms.append(read_ms())
    assert reader.poll() is None
    reader.send_signal(signal.SIGINT)
    before, planned, again = took_ms
    assert planned < 0.95 * min(before, again)
    assert all((tmp_path / name).stat().st_size for name in ("h1.png", "explain.png"))
