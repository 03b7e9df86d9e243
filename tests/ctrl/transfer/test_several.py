"""Commands of several sources that are interrupted: the same again brings what is missing."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import transfers
from careful.daemon.route import Route
from careful.errors import CarefulError
from careful.transfer.file.journal import is_partial
from careful.transfer.options import Options, Silent
from careful.transfer.partials import find_local
from careful.transfer.tree.marks import LocalMark, RemoteMark
from compare import assert_equal
from fake_daemon import FakeDaemon

BLOCK = 16384
PLAIN = Options(block_bytes=BLOCK, files_in_flight=1, blocks_in_flight=1, fsync="none")
ARCHIVE = replace(PLAIN, preserve=True, links=True, hard_links=True, xattrs=True)
LARGE = 5 * BLOCK
NAMES = ["one", "two", "link", "tree", "three"]
#: The tree's file and the first by itself, of five blocks each, and two blocks of the second.
AFTER = 13


class Ends:
    """Three files, a symlink and a tree; the directory they go to; a peer that dies in time."""

    def __init__(self, way: str, route: Route, daemon: FakeDaemon, here: Path) -> None:
        self.way, self.route, self.daemon = way, route, daemon
        ends = (daemon.root, here) if way == "get" else (here, daemon.root)
        self.source, self.target = ends[0] / "from", ends[1] / "to"
        (self.source / "tree/below").mkdir(parents=True)
        self.target.mkdir()
        for name in ("one", "two", "three", "tree/below/large"):
            (self.source / name).write_bytes(os.urandom(LARGE))
        (self.source / "tree/small").write_bytes(b"small")
        (self.source / "link").symlink_to("one")

    def run(self, options: Options = ARCHIVE, names: list[str] = NAMES) -> Any:
        if self.way == "get":
            sources = [f"from/{name}" for name in names]
            return transfers.get(self.route, sources, str(self.target), True, options, Silent())
        sources = [str(self.source / name) for name in names]
        return transfers.put(self.route, sources, "to", True, options, Silent())

    def moves(self, deadly: int = 1 << 30) -> list[int]:
        """How often blocks have moved from now on; the peer dies at one of these."""
        return self.daemon.moves((BLOCK,), deadly)

    def break_off(self, options: Options = ARCHIVE, after: int = AFTER) -> None:
        self.moves(after)
        with pytest.raises(CarefulError, match="the same command goes on"):
            self.run(options)
        self.moves()

    def failures(self, report: Any) -> dict[str, str]:
        return {Path(name).name: why for name, why in report.failures}

    def assert_whole(self) -> None:
        """All is at the target as it is at the source, and nothing else."""
        times = self.source.stat()
        os.utime(self.target, ns=(times.st_atime_ns, times.st_mtime_ns))  # itself it did not come
        assert_equal(self.source, self.target)

    def partials(self) -> list[Path]:
        return [path for path in self.target.rglob("*") if is_partial(path.name)]


@pytest.fixture(params=["get", "put"])
def ends(request: pytest.FixtureRequest, route: Route, daemon: FakeDaemon, tmp_path: Path) -> Ends:
    (tmp_path / "here").mkdir()
    return Ends(request.param, route, daemon, tmp_path / "here")


@pytest.mark.parametrize("force", [False, True])
def test_several__what_came_stays(ends: Ends, force: bool) -> None:
    options = replace(ARCHIVE, replace=force)
    ends.break_off(options)
    left = [one for one in find_local(str(ends.target), clean=False) if "command" in one.source]
    assert [one.state for one in left] == ["resumable"]
    assert "one and 4 more (command)" in left[0].source
    moves = ends.moves()
    report = ends.run(options)
    assert (report.failures, len(moves)) == ([], 4 * 5 - (AFTER - 1))
    brought = sorted(Path(name).name for name, _ in report.brought)
    assert brought == ["large", "one", "small"]
    assert report.resumed_bytes == 2 * LARGE + len("small") + 2 * BLOCK
    ends.assert_whole()
    assert ends.partials() == []
    # Once more it is another command's.
    again = ends.failures(ends.run())
    assert {"one", "two", "link", "three"} <= set(again)
    assert all("exists already" in why for why in again.values())


def test_several__in_the_last_moment(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """All is there but the end of the mark: nothing moves, links are not refused either."""
    kind = LocalMark if ends.way == "get" else RemoteMark
    end = kind.end

    async def dying(mark: Any, done: bool) -> None:
        whole = mark._folder.endswith("to")
        await end(mark, done and not whole)
        if whole:
            raise CarefulError(errno.ENOTCONN, "carefuld ended", "test")

    with monkeypatch.context() as patch:
        patch.setattr(kind, "end", dying)
        with pytest.raises(CarefulError):
            ends.run()
    moves = ends.moves()
    rehearsed = ends.run(replace(ARCHIVE, dry_run=True))
    assert len(ends.partials()) == 1
    report = ends.run()
    for one in (rehearsed, report):
        assert (one.failures, moves, len(one.brought), one.files_count) == ([], [], 5, 0)
    ends.assert_whole()
    assert ends.partials() == []


def test_several__not_what_came(ends: Ends) -> None:
    """What was there before, what the user changed, what the source changed: each by name."""
    (ends.target / "three").write_bytes(b"mine")
    (ends.target / "tree").mkdir()
    (ends.target / "tree/small").write_bytes(b"mine")
    ends.break_off()
    (ends.target / "one").write_bytes(bytes(LARGE))
    (ends.source / "tree/below/large").write_bytes(os.urandom(LARGE))
    told = ends.failures(ends.run())
    assert set(told) == {"one", "three", "large", "small"}
    for name in ("one", "large"):
        assert "changed, or made, since the transfer began" in told[name]
    for name in ("three", "small"):
        assert "exists already" in told[name]
    assert (ends.target / "one").read_bytes() == bytes(LARGE)
    assert (ends.target / "two").read_bytes() == (ends.source / "two").read_bytes()
    told = ends.failures(ends.run(replace(ARCHIVE, restart=True)))
    assert set(told) == {"three", "small"}
    assert all("exists already" in why for why in told.values())
    assert (ends.target / "three").read_bytes() == b"mine"
    assert (ends.target / "tree/small").read_bytes() == b"mine"
    for name in ("one", "tree/below/large"):
        assert (ends.target / name).read_bytes() == (ends.source / name).read_bytes()
    assert ends.partials() == []


def test_several__of_one_name(ends: Ends) -> None:
    """Two sources that go to one: the second is refused, after an interruption, too."""
    (ends.source / "tree/one").write_bytes(b"another")
    names = ["one", "tree/one", "two"]
    ends.moves(7)
    with pytest.raises(CarefulError, match="goes on"):
        ends.run(names=names)
    ends.moves()
    for options in (replace(ARCHIVE, restart=True), ARCHIVE):
        report = ends.run(options, names)
        assert {why.rpartition(": ")[2] for _, why in report.failures} == {
            "exists already; -f replaces it"
        }
        assert (ends.target / "one").read_bytes() == (ends.source / "one").read_bytes()


def test_several__came_meanwhile(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file gets its name when we have looked already: it is not refused if it is equal."""
    from careful.transfer import move

    ends.break_off()
    module = f"{ends.way}_file"
    begun = getattr(move, module)

    async def late(remote: Any, source: str, *given: Any, **more: Any) -> Any:
        if source.endswith("three"):
            (ends.target / "three").write_bytes((ends.source / "three").read_bytes())
        return await begun(remote, source, *given, **more)

    monkeypatch.setattr(move, module, late)
    report = ends.run()
    assert report.failures == []
    assert "three" in {Path(name).name for name, _ in report.brought}
