"""Sources that change during the copy: a file that only grows is copied as it was."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transfers
from careful._abi import lib
from careful.daemon.route import Route
from careful.transfer.options import Options, Progress
from careful.transfer.stream.local_end import Span
from fake_daemon import MOVES, FakeDaemon

BLOCK = 4096
DATA = random.Random(7).randbytes(10 * BLOCK + 100)
CHANGED = "changed while it was being transferred"


class Ends(transfers.OneFile):
    """A transfer of one file, whose source changes at the third block."""

    def __init__(self, way: str, route: Route, daemon: FakeDaemon, tmp_path: Path) -> None:
        super().__init__(way, route, daemon, tmp_path, DATA)
        self.notes: list[str] = []

    def run(self, change: Callable[[], object], **more: Any) -> Any:
        notes, moved = self.notes, 0

        class Watch(Progress):
            def note(self, text: str) -> None:
                notes.append(text)

        def fault(question: Any) -> int:
            nonlocal moved
            if question.op in MOVES and question.bytes == BLOCK:
                moved += 1
                if moved == 3:
                    change()
            return 0

        self.daemon.fault = fault
        options = Options(**({"block_bytes": BLOCK, "blocks_in_flight": 1} | more))
        report = self.move(options, Watch())
        assert moved >= 3
        assert not self.daemon.handles
        return report

    def append(self) -> None:
        with self.source.open("ab") as file:
            file.write(b"more")

    def rewrite(self, data: bytes = b"other" + DATA) -> None:
        """Rewrites the source: longer, and with another beginning."""
        self.source.write_bytes(data)


@pytest.fixture(params=["get", "put"])
def ends(request: pytest.FixtureRequest, route: Route, daemon: FakeDaemon, tmp_path: Path) -> Ends:
    return Ends(request.param, route, daemon, tmp_path)


@pytest.mark.parametrize("digest", [True, False])
def test_growing__copied_as_it_was(ends: Ends, digest: bool) -> None:
    report = ends.run(ends.append, digest=digest)
    assert not report.failures
    assert ends.target.read_bytes() == DATA
    assert ends.source.read_bytes() == DATA + b"more"
    [note] = ends.notes
    assert f"grew during the transfer; its first {len(DATA)} bytes were copied" in note


def test_growing__a_file_of_one_block(ends: Ends) -> None:
    ends.source.write_bytes(DATA[:BLOCK])
    moved: list[int] = []

    def fault(question: Any) -> int:
        if question.op in MOVES and not moved:
            moved.append(question.bytes)
            ends.append()
        return 0

    ends.daemon.fault = fault
    report = ends.move(Options(), Progress())
    assert moved == [BLOCK]
    assert not report.failures
    assert ends.target.read_bytes() == DATA[:BLOCK]


@pytest.mark.parametrize("data", [b"other" + DATA, DATA[1:] + b"x"])
def test_rewritten_source__is_refused(ends: Ends, data: bytes) -> None:
    report = ends.run(lambda: ends.rewrite(data))
    assert CHANGED in report.failures[0][1]
    assert not ends.target.exists()
    assert "grew" not in "".join(ends.notes)


def test_touched__a_new_time_alone_is_no_change(ends: Ends) -> None:
    report = ends.run(lambda: os.utime(ends.source, ns=(1, 1)))
    assert not report.failures
    assert ends.target.read_bytes() == DATA
    assert not ends.notes


def test_get__another_file_of_the_same_beginning(
    route: Route, daemon: FakeDaemon, tmp_path: Path
) -> None:
    """A log is rotated, and the new file begins with the same bytes."""
    ends = Ends("get", route, daemon, tmp_path)

    def rotate() -> None:
        ends.append()
        ends.source.rename(daemon.root / "a.1")
        ends.source.write_bytes(DATA + b"more")

    assert CHANGED in ends.run(rotate).failures[0][1]
    assert not ends.target.exists()


def test_get__grows_and_its_handle_is_lost(
    route: Route, daemon: FakeDaemon, tmp_path: Path
) -> None:
    ends = Ends("get", route, daemon, tmp_path)

    def lose() -> None:
        ends.append()
        [number] = daemon.handles
        os.close(daemon.handles.pop(number).fd)

    assert not ends.run(lose).failures
    assert ends.target.read_bytes() == DATA
    assert len(ends.notes) == 1


@pytest.mark.parametrize("change", ["append", "rewrite"])
def test_get__range_of_a_growing_file(
    route: Route, daemon: FakeDaemon, tmp_path: Path, change: str
) -> None:
    ends = Ends("get", route, daemon, tmp_path)

    def fault(question: Any) -> int:
        if question.op == lib.CAREFUL_IPC_GET and question.region_off == 3 * BLOCK:
            getattr(ends, change)()
        return 0

    daemon.fault = fault
    options = Options(block_bytes=BLOCK, blocks_in_flight=1)
    span = Span(BLOCK)
    if change == "append":
        transfers.get(route, ["a"], str(ends.target), False, options, Progress(), span)
        assert ends.target.read_bytes() == DATA[BLOCK:]
        return
    with pytest.raises(OSError, match=CHANGED) as found:
        transfers.get(route, ["a"], str(ends.target), False, options, Progress(), span)
    assert found.value.errno == errno.ESTALE
    assert not ends.target.exists()


@pytest.mark.parametrize("more", [{}, {"checksum": True}, {"digest": False}])
@pytest.mark.parametrize("span", [Span(at=BLOCK), Span(BLOCK), Span(BLOCK, 5 * BLOCK, 0)])
def test_put__range_of_a_file_that_changes(
    route: Route, daemon: FakeDaemon, tmp_path: Path, span: Span, more: dict[str, bool]
) -> None:
    """For a file written in place, the error says how to continue; a new file is removed."""
    if "checksum" in more and span.at is None:
        pytest.skip("-c is of what is written in place")
    ends = Ends("put", route, daemon, tmp_path)
    options = Options(**({"block_bytes": BLOCK, "blocks_in_flight": 1, "replace": True} | more))
    whole = DATA[span.offset :][: span.nbytes]

    def run(change: Callable[[], object]) -> Any:
        ends.source.write_bytes(DATA)
        ends.target.unlink(missing_ok=True)
        if span.at is not None:
            ends.target.write_bytes(bytes(2 * len(DATA)))
        places = iter(range(2))

        def fault(question: Any) -> int:
            if question.op == lib.CAREFUL_IPC_STORE and next(places, None) == 1:
                change()
            return 0

        daemon.fault = fault
        given = [str(ends.source)], "a", False, options, Progress(), span
        return transfers.put(route, *given)

    for change in (ends.append, lambda: os.utime(ends.source, ns=(1, 1))):
        run(change)
        assert ends.target.read_bytes()[span.at or 0 :].startswith(whole)
    for data in (b"other" + DATA, DATA[:-1], DATA[::-1]):
        with pytest.raises(OSError, match=CHANGED) as found:
            run(lambda data=data: ends.rewrite(data))  # type: ignore[misc]
        assert found.value.errno == errno.ESTALE
        assert ("-c resumes" in str(found.value)) == ends.target.exists() == (span.at is not None)
    assert not daemon.handles


def test_put__has_no_size(route: Route, daemon: FakeDaemon, tmp_path: Path) -> None:
    """A file of /proc reports a size of 0 bytes."""
    report = transfers.put(route, ["/proc/cpuinfo"], "a", False, Options(), Progress())
    assert not report.failures
    # Clock frequencies may differ between reads.
    assert (daemon.root / "a").read_text().split(":")[0] == "processor\t"
    assert (daemon.root / "a").read_text().endswith("\n\n")


def test_put__tree_with_a_file_without_a_size(route: Route, daemon: FakeDaemon) -> None:
    folder = Path("/proc/sys/kernel/random")
    report = transfers.put(route, [f"{folder}/"], "a", True, Options(), Progress())
    size = folder / "poolsize"
    assert (daemon.root / "a" / "poolsize").read_bytes() == size.read_bytes()
    assert not report.failures
