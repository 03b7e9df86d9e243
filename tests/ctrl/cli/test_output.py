"""Output of carefulctl: an error on one line, a bar on a terminal, JSON for any reader."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from careful.cli.common import output_option, show
from careful.cli.files import transfer
from careful.cli.main import run
from careful.control.instance import remote
from careful.errors import CarefulError, EndedBySignal
from careful.jsonout import document, write
from careful.render.files.bar import Bar
from careful.render.files.progress import Lines
from careful.render.files.transfer import summary
from careful.render.files.watching import watch
from careful.transfer.lost_frames import Lost
from careful.transfer.options import FileResult, Options
from careful.transfer.result import Result
from careful.transfer.run import session
from careful.transfer.tree.outcome import Outcome

#: A newline, an escape sequence that turns the terminal red, a byte that is no UTF-8.
NAME = "new\nline \x1b[31m \udcff"
SHOWN = "new\\nline \\x1b[31m \\udcff"


class Terminal:
    """A pseudo-terminal: text() returns the output to `stream` after its end."""

    def __init__(self) -> None:
        self._master, slave = pty.openpty()
        self.stream = os.fdopen(slave, "w")
        self._read = b""
        self._thread = threading.Thread(target=self._drain)
        self._thread.start()

    def _drain(self) -> None:
        with contextlib.suppress(OSError):  # EIO: the other end is closed
            while data := os.read(self._master, 4096):
                self._read += data

    def text(self) -> str:
        """Returns all output."""
        self.stream.close()
        self._thread.join()
        return self._read.decode()

    def close(self) -> None:
        """Closes the descriptors."""
        self.text()
        os.close(self._master)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    """A terminal that take() makes the standard error."""
    one = Terminal()
    yield one
    one.close()


def take(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the terminal standard error, inside the test, since pytest sets stderr, too."""
    monkeypatch.setattr(sys, "stderr", terminal.stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")


def test_note__nothing_that_a_terminal_obeys(capsys: pytest.CaptureFixture[str]) -> None:
    Lines().note(NAME)
    assert capsys.readouterr().err == f"carefulctl: {SHOWN}\n"


def test_note__above_the_bar(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    take(terminal, monkeypatch)
    with watch(True) as bar:
        bar.note(NAME)
    assert SHOWN in terminal.text()


def test_error__one_line_without_terminal_commands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["status", "--config", "/nowhere/\x1b[31m\n\udcff"]) == 1
    errors = capsys.readouterr().err
    assert errors.startswith("carefulctl: /nowhere/\\x1b[31m")
    assert errors.count("\n") == 1
    assert errors.endswith("\n")


def test_error__debug_prints_the_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CAREFUL_DEBUG", "1")
    assert run(["status", "--config", "/nowhere"]) == 1
    first, *_, last = capsys.readouterr().err.splitlines()
    assert first == "Traceback (most recent call last):"
    assert last == "carefulctl: /nowhere: No such file or directory"
    monkeypatch.delenv("CAREFUL_DEBUG")
    assert run(["status", "--config", "/nowhere"]) == 1
    assert capsys.readouterr().err == "carefulctl: /nowhere: No such file or directory\n"


def test_watch__a_bar_only_on_a_terminal(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(terminal, monkeypatch)
    assert isinstance(watch(True), Bar)
    assert not isinstance(watch(False), Bar)
    read_end, write_end = os.pipe()
    with os.fdopen(write_end, "w") as pipe:
        monkeypatch.setattr(sys, "stderr", pipe)
        assert not isinstance(watch(True), Bar)
    os.close(read_end)


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_bar__is_one_line(
    columns: int, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long text once wrapped, with "files" on a line of its own."""
    take(terminal, monkeypatch)
    monkeypatch.setenv("COLUMNS", str(columns))
    with watch(True) as bar:
        bar.expect(1, 60_000_000)
        bar.moved(14_000_000)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", terminal.text())
    said = [one for one in re.split(r"[\r\n]+", text) if one.strip()]
    assert "13.4 MiB of 57.2 MiB" in said[-1]
    assert [one for one in said if not re.search(r"B of .* files *$", one)] == []
    assert max(map(len, said)) <= columns


def test_bar__bytes_and_files(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    take(terminal, monkeypatch)
    with watch(True) as bar:
        bar.expect(3, 4096)
        bar.moved(1024)
        bar.finished("a")
    text = terminal.text()
    assert "1/3 files" in text
    assert "KiB" in text


class Effect:
    """The effect that remote.find() returns."""

    def as_dict(self) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize(
    ("words", "out", "err"),
    [
        ([], "XXH3 of blocks checked: 000000000000beef", ["carefulctl: h2:b: no"]),
        (["-v"], "1 link, 1 deleted, 3 pieces retried", ["carefulctl: h2:b: no"]),
        (["-q"], "", ["carefulctl: h2:b: no"]),
        (["-qv"], "h2:a\ndeleted old\n", ["carefulctl: h2:b: no"]),
        (["-n"], "h2:a -> a\ndelete old\n1 file, 1 MiB to move, 1 link,", ["carefulctl: h2:b: no"]),
    ],
)
def test_get__quiet_and_verbose(
    words: list[str],
    out: str,
    err: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = Result(singles=[FileResult("h2:a", "a", 1 << 20, 0xBEEF, 3)], seconds=1.0)
    report.failures.append(("h2:b", "h2:b: no"))
    report.deleted.append("old")
    report.links = 1

    async def get(*given: Any) -> Result:
        given[5].finished("h2:a")
        given[5].note("h2:b: no")
        return report

    monkeypatch.setattr(remote, "find", lambda *_: (None, Effect()))
    monkeypatch.setattr(session, "get", get)
    monkeypatch.setattr(transfer, "run", lambda _, work: asyncio.run(work(None)))
    assert run(["get", *words, "h2:a", "h2:b", "."]) == 3
    output = capsys.readouterr()
    assert out in output.out
    assert bool(out) == bool(output.out)
    assert output.err.splitlines() == err
    assert output.out.startswith("h2:a\ndeleted old\n") == ("v" in "".join(words))


def test_get__an_error_alone_has_no_summary(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """ "0 files, 0 B, 0.00 Gbit/s" is no information; of several files the number is shown."""
    report = Result(failures=[("h2:b", "h2:b: no")], seconds=1.0)

    async def get(*_: Any) -> Result:
        return report

    monkeypatch.setattr(remote, "find", lambda *_: (None, Effect()))
    monkeypatch.setattr(session, "get", get)
    monkeypatch.setattr(transfer, "run", lambda _, work: asyncio.run(work(None)))
    assert run(["get", "h2:b", "."]) == 1
    assert capsys.readouterr().out == ""
    report.failures.append(("h2:c", "h2:c: no"))
    assert run(["get", "h2:b", "h2:c", "."]) == 1
    assert capsys.readouterr().out == "2 FAILED\n"


def test_summary__new_epochs_alone_are_no_trouble() -> None:
    """The trial of XDP modes begins epochs during the first transfer with a peer."""
    report = Result(singles=[FileResult("h2:a", "a", 5, None, 0)], seconds=1.0, lost=Lost(0, 7))
    assert summary(report) == "1 file, 5 B in 1.00 s, 40 bit/s, nothing checked"
    report.lost = Lost(2, 1)
    assert click.unstyle(summary(report)).endswith("2 frames lost, 1 new epoch")


def test_finish__without_standard_output() -> None:
    """If standard output is closed, an error is a line without a traceback."""
    argv = [sys.executable, "-c", "from careful.cli.start import main; main()", "plan"]
    shell = ["sh", "-c", 'exec "$@" >&-', "-", *argv]
    done = subprocess.run(shell, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "utf-8"])
def test_start__a_locale_without_the_character(encoding: str) -> None:
    program = Path(sys.executable).parent / "carefulctl"
    env = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run([program, "help", "papers"], capture_output=True, env=env)
    assert (done.returncode, done.stderr) == (0, b"")
    rule = "\N{BOX DRAWINGS LIGHT HORIZONTAL}".encode()  # click treats ASCII as no locale
    assert (b"?" if encoding == "latin-1" else rule) * 60 in done.stdout


def test_start__without_standard_error() -> None:
    """Notes go to standard error, which may be closed; standard output does not get them."""
    code = """
import sys
from careful.cli import main, start
from careful.render.files.watching import watch

def progress_names(name):
    print(name, file=sys.stderr)

def run():
    with watch(True, progress_names) as progress:
        progress.finished("name")
    return 0

main.run = run
start.main()
"""
    shell = ["sh", "-c", 'exec "$@" 2>&-', "-", sys.executable, "-c", code]
    done = subprocess.run(shell, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("command", ["get", "put"])
def test_progress__a_descriptor_that_is_not_open(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The number would later belong to a file that is being written."""
    free = os.open(os.devnull, os.O_RDONLY)
    os.close(free)
    for fd in free, 1 << 40:
        assert run([command, "--progress-fd", str(fd), "h2:a", "h2:b"]) == 2
        assert f"'--progress-fd': {fd} is not an open file descriptor" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--no-such"], ["--instance"]])
def test_json__for_a_usage_error(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """--json once printed nothing, since its callback runs after the words are split."""
    assert run(["status", "--json", *words]) == 2
    output = capsys.readouterr()
    found = json.loads(output.out)
    assert (found["command"], found["exit_status"]) == ("status", 2)
    assert found["error"] in output.err
    assert run(["status", *words]) == 2
    assert capsys.readouterr().out == ""


def test_json__a_name_that_is_no_utf_8() -> None:
    text = document("ls", {"target": NAME}, {"entries": ["\u00fc"]})
    assert json.loads(text.encode())["inputs"]["target"] == NAME


def test_write__a_file_is_complete_or_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, link = tmp_path / "found.json", tmp_path / "link"
    link.symlink_to(file)
    write(link, "first")
    assert (link.is_symlink(), file.read_text()) == (True, "first")

    def fails(*_: Path) -> None:
        raise OSError("no")

    monkeypatch.setattr(Path, "replace", fails)
    with pytest.raises(OSError, match="no"):
        write(file, "second")
    assert file.read_text() == "first"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["found.json", "link"]


def test_write__a_special_file_is_written_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write(pipe, "text")
    assert os.read(reader, 99) == b"text"
    os.close(reader)
    assert pipe.is_fifo()


def test_show__table_and_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    @click.command("x")
    @output_option
    def command() -> None:
        show({"g_us": 1.5}, "a table", host="h2")

    group = click.Group("measure", commands=[command])
    words = ["x", "-o", str(tmp_path / "a.json")]
    click.Group("carefulctl", commands=[group]).main(
        ["measure", *words], "carefulctl", standalone_mode=False
    )
    assert capsys.readouterr().out == "a table\n"
    found = json.loads((tmp_path / "a.json").read_text())
    assert (found["command"], found["inputs"]["host"], found["g_us"]) == ("measure x", "h2", 1.5)


@pytest.mark.parametrize("kind", ["pathchar", "blackbox", "clearbox", "logp"])
def test_measure__an_unwritable_output_file_is_refused_before_anything_is_measured(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["measure", kind, "h2", "-o", str(tmp_path / "no" / "a.json")]) == 2
    assert "no such directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (None, None),
        (KeyboardInterrupt(), "interrupted"),
        (EndedBySignal(signal.SIGTERM), "ended by SIGTERM"),
        (CarefulError(errno.EIO, "broken", f"h2:{NAME}"), f"h2:{SHOWN}: broken"),
    ],
)
def test_progress__errors_and_the_end(
    tmp_path: Path, error: BaseException | None, text: str | None
) -> None:
    """A program learns of each failure, and of the final error."""
    with (
        (tmp_path / "lines").open("wb") as file,
        contextlib.suppress(BaseException),
        watch(False, False, file.fileno()) as progress,
    ):
        sink = Outcome(Options(), progress, Result())
        sink.fail("h2:f", CarefulError(errno.EIO, "broken", "h2:f"))
        progress.note("no failure")
        if error is not None:
            raise error
    reported = [json.loads(line) for line in (tmp_path / "lines").read_text().splitlines()]
    assert [one["event"] for one in reported] == ["error", "note", "end"]
    assert (reported[0]["name"], reported[0]["text"]) == ("h2:f", "h2:f: broken")
    assert (reported[2]["failures_count"], reported[2]["error"]) == (1, text)
