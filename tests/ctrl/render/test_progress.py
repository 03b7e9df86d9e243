"""Watching a transfer: the bar, grouped failures, and JSON lines on any pipe."""

from __future__ import annotations

import errno
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from careful.errors import CarefulError
from careful.render.files import progress as module
from careful.render.files.bar import Bar
from careful.render.files.progress import Lines
from careful.render.files.watching import watch
from careful.transfer.tree.existing import REFUSED


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_bar__the_rate_is_of_the_last_seconds() -> None:
    """The rate was once that of 30 s, and showed 432 MiB/s while half of that moved."""
    clock = Clock()
    bar = Bar(clock=clock, name="big")
    bar.expect(2, 1000 << 20)
    for _ in range(10):
        clock.now += 1
        bar.moved(50 << 20)
    assert bar.said().plain == "big  50 %  500 MiB of 1000 MiB  419 Mbit/s  0:00:10  0/2 files"
    for _ in range(8):
        clock.now += 1
        bar.moved(10 << 20)
    bar.retried()
    said = "big  58 %  580 MiB of 1000 MiB  83.9 Mbit/s  0:00:42  0/2 files  1 piece retried"
    assert bar.said().plain == said
    assert (
        Bar(name="a/long/name/of/a/file\n.tar.gz")
        .said()
        .plain.startswith("…name/of/a/file\\n.tar.gz  ")
    )


def test_bar__names_the_slow_host() -> None:
    """The bar once froze at "0:00:02" while the peer was stopped."""
    clock = Clock()
    bar = Bar(host="h2", clock=clock)
    bar.expect(1, 10 << 20)
    clock.now += 1
    bar.moved(8 << 20)
    clock.now += 4.2
    said = bar.said()
    assert said.plain == "80 %  8 MiB of 10 MiB  waiting for h2, 4 s  0/1 files"
    assert [str(span.style) for span in said.spans if span.style] == ["bold red"]
    clock.now += 60
    bar.moved(1 << 20)
    clock.now += 1
    assert "waiting" not in bar.said().plain
    bar.moved(1 << 20)
    clock.now += 3
    assert "finishing, 3 s" in bar.said().plain


def test_bar__nothing_came_for_long() -> None:
    clock = Clock()
    bar = Bar(clock=clock)
    assert bar.said().plain == "0 B of 0 B  0 bit/s  0/0 files"
    clock.now += 100
    bar.expect(1, 4096)
    assert bar.said().plain == "0 %  0 B of 4 KiB  0 bit/s  0/1 files"


def failure(name: str, reason: str) -> CarefulError:
    return CarefulError(errno.EEXIST, reason, name)


def test_failed__thousands_alike_are_counted(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lines = tmp_path / "lines"
    with lines.open("wb") as file, watch(False, None, file.fileno()) as progress:
        for number in range(5000):
            progress.failed(f"h2:f{number}", failure(f"h2:f{number}", REFUSED))
        progress.failed("h2:g", failure("h2:g", "no space"))
    errors = capsys.readouterr().err.splitlines()
    assert errors[0] == "carefulctl: h2:f0: exists and differs; -f replaces it"
    assert errors[-2:] == [
        "carefulctl: h2:g: no space",
        "carefulctl: 4990 more files exist and differ",
    ]
    assert len(errors) == 12
    reported = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [one["event"] for one in reported].count("error") == 5001
    assert reported[-1]["failures_count"] == 5001
    with Lines(names=print) as verbose:
        for number in range(20):
            verbose.failed(f"h2:f{number}", failure(f"h2:f{number}", "exists already"))
    assert len(capsys.readouterr().err.splitlines()) == 20


def small_pipe() -> tuple[int, int]:
    """A pipe whose writing end does not block."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    return reader, writer


def test_events__a_full_nonblocking_pipe_delays_and_loses_none() -> None:
    """Formerly one EAGAIN suppressed all later events, also `end`."""
    reader, writer = small_pipe()
    text = bytearray()

    def read() -> None:
        while data := os.read(reader, 1 << 16):
            text.extend(data)

    with Lines(fd=writer) as progress:
        for number in range(2000):  # more than a pipe holds
            if number == 300:
                thread = threading.Thread(target=read)
                thread.start()
            progress.finished(f"h2:{'long' * 10}{number}")
    os.close(writer)
    thread.join()
    os.close(reader)
    reported = [json.loads(line) for line in text.decode().splitlines()]
    assert [one["event"] for one in reported] == ["file"] * 2000 + ["end"]


def test_events__of_moved_bytes_may_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress events do not wait for room; a line is never cut."""
    monkeypatch.setattr(module, "_EVERY_S", -1.0)
    reader, writer = small_pipe()
    progress = Lines(fd=writer)
    for _ in range(3000):
        progress.moved(1)
    text = b""
    threading.Timer(0.2, lambda: progress.__exit__(None, None, None)).start()
    while b'"end"' not in text:
        text += os.read(reader, 1 << 16)
    os.close(reader)
    os.close(writer)
    reported = [json.loads(line) for line in text.decode().splitlines()]
    assert 10 < len(reported) < 3000
    assert reported[-1]["moved_bytes"] == 3000


def test_events__stop_for_a_reader_that_does_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_PATIENCE_S", 0.05)
    reader, writer = small_pipe()
    written: list[Any] = []
    progress = Lines(fd=writer)
    for number in range(2000):
        progress.finished(str(number))
        written.append(number)
    os.close(reader)
    os.close(writer)
    assert len(written) == 2000
