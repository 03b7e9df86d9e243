"""A hostile server cannot make a client write outside its target."""

from __future__ import annotations

import errno
import stat
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import transfers
from careful._abi import lib
from careful.address import resolve
from careful.daemon.route import Route
from careful.render.files.progress import Lines
from careful.transfer.options import Options, Progress
from careful.transfer.protocol.batch import packed_attr
from careful.transfer.protocol.spool import available_bytes
from careful.transfer.result import Result
from hostile import HostileDaemon, Told, folder, link

ARCHIVE = Options(
    block_bytes=1 << 20, preserve=True, links=True, hard_links=True, xattrs=True, fsync="none"
)
REPLACE = replace(ARCHIVE, replace=True)
#: Sizes of a small file, a file of one block, and a file with a journal.
SIZES = (10, 200_000, (1 << 20) + 5)


class Scene:
    """A hostile server, a target, and files outside of it."""

    def __init__(self, tmp_path: Path, server: HostileDaemon) -> None:
        self.server = server
        self.route = Route(server.path, "test", resolve("10.0.0.2"), "h2")
        self.outside, self.target = tmp_path / "outside", tmp_path / "to"
        self.outside.mkdir()
        self.target.mkdir()
        (self.outside / "kept").write_bytes(b"kept")

    def get(self, *sources: str, options: Options = ARCHIVE) -> Result:
        found: Result = transfers.get(
            self.route, list(sources), str(self.target), True, options, Progress()
        )
        return found

    def assert_untouched(self) -> None:
        """Checks that nothing outside was written."""
        assert [one.name for one in self.outside.iterdir()] == ["kept"]
        assert (self.outside / "kept").read_bytes() == b"kept"
        assert stat.S_IMODE((self.outside / "kept").stat().st_mode) != 0o4755
        assert stat.S_IMODE(self.outside.stat().st_mode) != 0o4755


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    server = HostileDaemon(tmp_path, tmp_path / "none")
    yield Scene(tmp_path, server)
    server.stop()


@pytest.mark.parametrize("size", SIZES)
def test_exports__a_directory_below_a_symlink(scene: Scene, size: int) -> None:
    """The exports are `a` and `a/x`: tree a brings a symlink x, and a/x must not be written through
    it.
    """
    reported = scene.server.told
    scene.server.top = folder(".", inode=0)
    reported["."] = [folder("a"), folder("a/x")]
    reported["a"] = [link("x", scene.outside)]
    reported["a/x"] = [Told("kept", data=b"z" * size), Told("new", data=b"z" * size)]
    for options in (ARCHIVE, REPLACE):
        [(_, text)] = scene.get("", options=options).failures
        assert "bad entry 'a/x'" in text
        scene.assert_untouched()


def test_exports__the_same_name_twice(scene: Scene) -> None:
    reported = scene.server.told
    scene.server.top = folder(".", inode=0)
    reported["."] = [link("a", scene.outside), folder("a")]
    reported["a"] = [Told("new", data=b"z")]
    [(_, text)] = scene.get("").failures
    assert "twice" in text
    scene.assert_untouched()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("options", [ARCHIVE, REPLACE, replace(REPLACE, checksum=True)])
def test_tree__names_below_a_symlink(scene: Scene, size: int, options: Options) -> None:
    """A symlink, and a name below it without a directory; in the second run the symlink exists."""
    scene.server.told["tree"] = [
        link("s", scene.outside),
        Told("s/kept", stat.S_IFREG | 0o4755, b"z" * size),
        Told("s/new", data=b"z" * size),
    ]
    scene.server.told["."] = [folder("tree")]
    for _ in range(2):
        report = scene.get("tree", options=options)
        scene.assert_untouched()
    assert (scene.target / "tree/s").is_symlink()
    assert len(report.failures) >= 2


@pytest.mark.parametrize("size", SIZES)
def test_tree__its_own_name_is_a_symlink_by_now(scene: Scene, size: int) -> None:
    """First a symlink of that name, then a tree: in two runs, or two sources of one."""
    reported = scene.server.told
    reported["."] = [link("a", scene.outside)]
    assert scene.get("a").failures == []
    reported["."] = [folder("a")]
    reported["a"] = [Told("new", data=b"z" * size)]
    [(_, text)] = scene.get("a").failures
    assert "not a directory" in text
    scene.assert_untouched()


@pytest.mark.parametrize("size", SIZES)
def test_tree__a_directory_becomes_a_symlink(scene: Scene, size: int) -> None:
    """A user with write access swaps a directory of the target while it is filled."""
    reported = scene.server.told
    reported["."] = [folder("tree")]
    reported["tree"] = [folder("d"), Told("d/kept", data=b"z" * size)]
    swapped = False

    def fault(question: object) -> int:
        nonlocal swapped
        if not swapped and (scene.target / "tree/d").is_dir():
            swapped = True
            (scene.target / "tree/d").rename(scene.target / "was")
            (scene.target / "tree/d").symlink_to(scene.outside)
        return 0

    scene.server.fault = fault
    scene.get("tree", options=REPLACE)
    assert swapped
    scene.assert_untouched()


OUT = "../../outside"
SPECIAL = (stat.S_IFIFO, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFSOCK)
#: Ways out of a target in a server's listing. An impossible name ends the listing; the others fail
#: alone or are made.
ESCAPES: dict[str, list[Told]] = {
    **{
        f"name {name!r:.20}": [Told(name, data=b"z")]
        for name in ("../x", "/x", "a/../../x", "", ".", "..", "a//x", "x\0y", "a/")
    },
    "overlong name": [Told("n" * 256, data=b"z")],
    "overlong path": [Told("/".join(["d" * 255] * 17), data=b"z")],
    "symlink": [link("s", OUT), Told("s/new", data=b"z"), Told("s/kept", data=b"z")],
    "symlink to a file": [link("kept", f"{OUT}/kept"), Told("kept", data=b"z")],
    "symlink, directory below": [link("s", OUT), folder("s/d"), Told("s/d/new", data=b"z")],
    "symlink to a symlink": [link("s", OUT), link("t", "s"), Told("t/new", data=b"z")],
    "symlink of another case": [link("S", OUT), link("s", OUT), Told("s/new", data=b"z")],
    "proc": [link("p", "/proc/self/cwd"), Told("p/new", data=b"z")],
    "descriptor": [link("p", "/proc/self/fd"), Told("p/3", data=b"z")],
    "hard link to a symlink": [
        link("a", f"{OUT}/kept")._replace(nlink=2),
        Told("b", data=b"z", nlink=2),
    ],
    "hard link below a symlink": [
        Told("a", data=b"z", nlink=2),
        link("s", OUT),
        Told("s/new", data=b"z", nlink=2),
    ],
    **{
        f"special {kind:o}": [Told("special", kind | 0o666), Told("special/new", data=b"z")]
        for kind in SPECIAL
    },
}


@pytest.mark.parametrize("options", [ARCHIVE, REPLACE])
@pytest.mark.parametrize("escape", ESCAPES)
def test_escape__no_path_leads_out(scene: Scene, escape: str, options: Options) -> None:
    """Runs twice: in the second run the first one's files exist."""
    scene.server.told["."] = [folder("tree")]
    scene.server.told["tree"] = [*ESCAPES[escape], Told("fine", data=b"z")]
    for _ in range(2):
        failures = scene.get("tree", options=options).failures
        assert failures or escape == "hard link to a symlink"
        if escape.startswith("name "):
            assert "bad entry" in failures[0][1]
            assert list(scene.target.glob("*/*")) == []
        scene.assert_untouched()
        made = list(scene.target.rglob("*"))
        assert not {stat.S_IFMT(one.lstat().st_mode) for one in made} & set(SPECIAL)


def test_wildcards__names_of_several_components(scene: Scene) -> None:
    """A listing of one directory has names of one component."""
    scene.server.told["."] = [link("a", scene.outside), folder("b/a")]
    with pytest.raises(OSError, match="bad entry"):
        transfers.listing(scene.route, "", False)


@pytest.mark.parametrize("allocated", [1 << 50, 0])
def test_file__of_an_announced_pebibyte(scene: Scene, allocated: int) -> None:
    """Neither the file nor a list of its blocks is allocated."""
    scene.server.told["."] = [Told("huge", bytes=1 << 50, allocated=allocated)]
    tracemalloc.start()
    [(_, text)] = scene.get("huge").failures
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "No space left" in text or "--block-bytes" in text
    assert peak < 64 << 20
    assert list(scene.target.iterdir()) == []


class Steps(Progress):
    """Fails a transfer that takes more steps than it should."""

    def __init__(self) -> None:
        self.steps = 0

    def present(self, nbytes: int) -> None:
        self.steps += 1
        assert self.steps < 1000


def test_files__of_announced_holes(scene: Scene) -> None:
    """A hole costs no step for each of its blocks, so the transfer ends."""
    names = [f"a{number}" for number in range(4)]
    scene.server.told["."] = [folder("tree")]
    scene.server.told["tree"] = [Told(one, data=b"x", bytes=1 << 40, allocated=0) for one in names]
    options = replace(ARCHIVE, preserve=False, block_bytes=4 << 20)
    report = transfers.get(scene.route, ["tree"], str(scene.target), True, options, Steps())
    assert report.failures == []
    for name in names:
        found = (scene.target / "tree" / name).stat()
        assert (found.st_size, found.st_blocks * 512 < 1 << 20) == (1 << 40, True)


def test_listing__larger_than_memory(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listing that does not fit the memory is refused."""
    scene.server.told["."] = [folder("tree")]
    scene.server.told["tree"] = [Told("f")]
    monkeypatch.setattr("careful.transfer.protocol.block.available_bytes", lambda: 64 << 20)
    scene.server.listing_bytes = 9 << 20
    moved = scene.server.moves((9 << 20,))
    [(_, text)] = scene.get("tree").failures
    assert "a listing of 9 MiB is too large for the memory that is free here" in text
    assert moved == []
    assert available_bytes() > 0


def test_stat__cut_short(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hostile.packed_attr", lambda attr: packed_attr(attr)[:9])
    scene.server.told["."] = [Told("f", data=b"z")]
    [(_, text)] = scene.get("f", options=replace(ARCHIVE, links=False)).failures
    assert "sent no attributes" in text


@pytest.mark.parametrize("extents", [[(1 << 63, 1 << 63)], [(4096, 1000), (0, 8192)], [(0, 9000)]])
def test_extents__malformed(scene: Scene, extents: list[tuple[int, int]]) -> None:
    """Extents out of order, or beyond their range, are refused."""
    scene.server.told["."] = [Told("f", data=b"z" * 8192, allocated=0)]
    scene.server.extents = extents
    [(_, text)] = scene.get("f").failures
    assert "malformed extents" in text


def test_extents__without_end(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hole after the last remembered one counts as data."""
    monkeypatch.setattr("careful.transfer.file.holes._EXTENTS_MAX", 2)
    scene.server.told["."] = [Told("f", data=b"z" * 8192, allocated=0)]
    scene.server.extents = [(0, 1), (2, 1), (4, 1), (6, 1)]
    assert scene.get("f").failures == []
    assert (scene.target / "f").read_bytes()[5:] == b"z" * 8187


def test_listing__an_unknown_errno(scene: Scene) -> None:
    scene.server.told["."] = [folder("tree")]
    scene.server.told["tree"] = [Told("f", error=(1 << 32) - 1)]
    [(_, text)] = scene.get("tree").failures
    assert "error 4294967295" in text


def test_name__for_a_terminal_in_an_error(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """A file with terminal commands in its name that cannot be opened."""
    scene.server.told["."] = [folder("tree")]
    scene.server.told["tree"] = [Told("\x1b[2J", data=b"z" * 200_000)]
    scene.server.fault = lambda question: (
        -errno.EACCES * (question.handler == lib.CAREFUL_BLOCK_OPEN)
        if question.op == lib.CAREFUL_IPC_REQUEST
        else 0
    )
    report = transfers.get(scene.route, ["tree"], str(scene.target), True, ARCHIVE, Lines())
    assert report.failures
    assert "\x1b" not in "".join(text for _, text in report.failures)
    assert "\x1b" not in capsys.readouterr().err
