"""Figures from the notes of senders and receivers, for notes with a known answer."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from careful.cli.main import run
from careful.errors import CarefulError
from careful.event import trace
from careful.render.tracing.events import traffic_text


def write(
    directory: Path, rank: int, notes: list[tuple[int, str, int]], nodes: int = 3, window: int = 4
) -> None:
    """Writes notes: (ns, s or r, the other node); the event is the note's number."""
    head = (
        f"# careful events 1: rank {rank} of {nodes}, window {window}, receive buffers 12, "
        "left out 0\n# at_ns what node event bytes flags\n"
    )
    lines = [f"{at} {what} {node} {i} 100 2\n" for i, (at, what, node) in enumerate(notes)]
    (directory / f"event-0-{rank}.trace").write_text(head + "".join(lines))


def pattern(directory: Path) -> None:
    """Node 0 sends node 1 six fragments before node 1 consumes any; node 2 sends it one."""
    write(directory, 0, [(10 + i, "s", 1) for i in range(6)] + [(40, "s", 1)])
    received = [(20 + i, "r", 0) for i in range(6)]
    write(directory, 1, [*received, (30, "r", 2), (50, "r", 0)])
    write(directory, 2, [(25, "s", 1)])


def test_matrix__counts_sent_messages(tmp_path: Path) -> None:
    pattern(tmp_path)
    count, nbytes = trace.matrix(trace.read_all(tmp_path))
    assert np.array_equal(count, [[0, 7, 0], [0, 0, 0], [0, 1, 0]])
    assert np.array_equal(nbytes, count * 100)


def test_outstanding__itself_included() -> None:
    sent, consumed = np.array([1, 2, 3, 10]), np.array([4, 5, 6, 11])
    assert trace.outstanding(sent, consumed).tolist() == [1, 2, 3, 1]
    assert trace.outstanding(sent, consumed[:0]).tolist() == [1, 2, 3, 4]


def test_pairs__windows_of_the_patterns_size(tmp_path: Path) -> None:
    pattern(tmp_path)
    first, second = trace.pairs(trace.read_all(tmp_path))
    assert (first.source, first.to, first.fragments, first.most) == (0, 1, 7, 6)
    assert (first.window, first.sized) == (4, 12 * 6 // 7)
    assert first.closed == pytest.approx(3 / 7)  # the 4th, 5th and 6th outstanding
    assert first.sized_closed == 0
    assert (second.source, second.most, second.sized) == (2, 1, 12 * 1 // 7)


def test_read_all__names_the_fault(tmp_path: Path) -> None:
    with pytest.raises(CarefulError, match="trace of events"):
        trace.read_all(tmp_path)
    write(tmp_path, 1, [])
    with pytest.raises(CarefulError, match="ranks 1 of a group of 3"):
        trace.read_all(tmp_path)
    (tmp_path / "event-0-0.trace").write_text("")
    with pytest.raises(CarefulError, match="was not closed"):
        trace.read_all(tmp_path)
    pattern(tmp_path)
    whole = (tmp_path / "event-0-0.trace").read_text()
    (tmp_path / "event-0-0.trace").write_text(whole[:-9])
    with pytest.raises(CarefulError, match="is damaged"):
        trace.read_all(tmp_path)


def test_traffic_text__has_the_total(tmp_path: Path) -> None:
    pattern(tmp_path)
    text = traffic_text(trace.read_all(tmp_path))
    assert "2 of 6 pairs talk; without copying out, 37.5% of the fragments" in text
    for rank in range(3):
        write(tmp_path, rank, [])
    assert "nobody sent anything" in traffic_text(trace.read_all(tmp_path))


def test_command__prints_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pattern(tmp_path)
    picture = tmp_path / "who.svg"
    assert run(["trace", "events", str(tmp_path), "--json", "--plot", str(picture)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["fragments"][0] == [0, 7, 0]
    assert found["pairs"][0]["most"] == 6
    assert "from sent to consumed" in picture.read_text()
    assert run(["trace", "events", str(tmp_path / "nothing")]) != 0
