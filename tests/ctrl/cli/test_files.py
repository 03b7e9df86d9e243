"""ls, get, put, sync and partials as typed: their effects, output and status."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from careful._abi import lib
from careful.cli.main import run
from careful.control.instance import remote
from careful.daemon.route import Route
from compare import describe, set_xattr
from fake_daemon import FakeDaemon


class Effect:
    """The effect that the fake remote.find() returns; these tests ignore it."""

    def as_dict(self) -> dict[str, Any]:
        return {}


class Said(NamedTuple):
    """The status and output of a command."""

    status: int
    out: str
    err: str


Type = Callable[..., Said]


@pytest.fixture(name="type_")
def _type(
    route: Route,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Type:
    """Runs a command in a directory `here`; h2 is a fake peer."""
    monkeypatch.setattr(remote, "find", lambda *_: (route, Effect()))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    def typed(*words: str) -> Said:
        capsys.readouterr()
        status = run(words)
        return Said(status, *capsys.readouterr())

    return typed


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["get", "foo"], "foo: is not HOST:PATH; did you mean foo:?"),
        (["get", "foo", "."], "foo: is not HOST:PATH; did you mean foo:?"),
        (["put", "foo", "h2"], "h2: is not HOST:PATH; did you mean h2:?"),
        (["ls", "h2"], "h2: is not HOST:PATH; did you mean h2:?"),
        (
            ["get", "--bytes", "10", "h2:a", "h2:b", "."],
            "--offset, --bytes and --at need a single file",
        ),
        (["get", "--at", "10", "-f", "h2:a", "h2:b", "."], "and --at need a single file"),
    ],
)
def test_usage__a_line_and_status_2(type_: Type, words: list[str], said: str) -> None:
    found = type_(*words)
    assert (found.status, found.out) == (2, "")
    assert said in found.err


def test_put__the_same_twice(type_: Type, export: Path) -> None:
    """Both sides are equal: one line reports it, and the status is 0."""
    Path("ds").mkdir()
    for index in range(50):
        Path(f"ds/{index}").write_text(str(index))
    assert type_("put", "-r", "ds", "h2:").status == 0
    again = type_("put", "-r", "ds", "h2:")
    assert (again.status, again.err) == (0, "")
    assert again.out.count("\n") == 1
    assert again.out == "50 files equal and left alone\n"
    (export / "ds/7").write_text("8")
    again = type_("put", "-r", "ds", "h2:")
    assert again.status == 3
    assert again.err == "carefulctl: h2:ds/7: exists and differs; -f replaces it\n"


def test_put__files_of_sysfs(type_: Type, export: Path) -> None:
    """Reads give 4 bytes and stat 4096: the file was once reported as shortened."""
    name = "/sys/devices/system/cpu/online"
    assert Path(name).stat().st_size > len(Path(name).read_bytes())
    for words in (
        ("put", name, "h2:"),
        ("put", "-r", "/sys/devices/system/cpu/cpu0/topology", "h2:"),
    ):
        found = type_(*words)
        assert (found.status, found.err) == (0, "")
        again = type_(*words)
        assert (again.status, again.err) == (0, "")
        assert "equal and left alone" in again.out
    assert (export / "online").read_bytes() == Path(name).read_bytes()
    for one in Path("/sys/devices/system/cpu/cpu0/topology").iterdir():
        assert (export / "topology" / one.name).read_bytes() == one.read_bytes()


def test_get__a_special_file_stays(type_: Type, export: Path) -> None:
    """With -f a file of a tree replaces files and links, but no fifo, nor does a directory."""
    (export / "ds/sub").mkdir(parents=True)
    (export / "ds/link").symlink_to("a")
    for name in ("a", "b", "sub/x"):
        (export / "ds" / name).write_text(name)
    Path("ds").mkdir()
    for name in ("a", "link", "sub"):
        os.mkfifo(f"ds/{name}")
    found = type_("get", "-af", "--delete", "h2:ds", ".")
    assert found.status == 3
    assert "ds/a: is a special file and is never replaced" in found.err
    assert "ds/link: is a special file and is never replaced" in found.err
    assert all(Path("ds", name).is_fifo() for name in ("a", "link", "sub"))
    assert Path("ds/b").read_text() == "b"


@pytest.mark.parametrize(
    ("words", "origin"),
    [
        (("get", "h2:none", "."), "transfer/tree/direction.py"),  # raised
        (("put", "none", "h2:"), "transfer/tree/direction.py"),
        (("get", "-r", "h2:ds", "."), "transfer/tree/copy.py"),  # noted
    ],
)
def test_debug__a_failure_of_a_file_has_a_traceback(
    type_: Type,
    export: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    origin: str,
) -> None:
    """The traceback was once lost with the collected failures."""
    (export / "ds").mkdir()
    (export / "ds/a").write_text("a")
    Path("ds").mkdir()
    Path("ds/a").write_text("mine")
    plain = type_(*words)
    assert plain.status != 0
    assert plain.err.count("\n") == 1
    monkeypatch.setenv("CAREFUL_DEBUG", "1")
    found = type_(*words)
    assert found.err.endswith(plain.err)
    assert "(most recent call last):" in found.err
    assert origin in found.err


def test_get__verbose_names_each_step(type_: Type, export: Path) -> None:
    """Failures are on standard error only."""
    (export / "ds").mkdir()
    for name in ("a", "b", "c"):
        (export / "ds" / name).write_text(name)
    Path("ds").mkdir()
    Path("ds/b").write_text("mine")
    found = type_("get", "-rv", "h2:ds", ".")
    assert found.status == 3
    assert sorted(found.out.splitlines()[:-1]) == ["h2:ds/a", "h2:ds/c"]
    assert "ds/b: exists and differs" in found.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("get", "h2:null:", "x"), "null: is endless: give --bytes"),
        (("get", "-f", "--at", "5", "h2:a", "none"), "none: No such file or directory"),
        (("get", "-r", "h2:ds", "mine"), "mine: is not a directory"),
        (("put", "-r", "ds", "h2:a"), "h2:a: is not a directory"),
        (("get", "h2:*.zip", "."), "h2:*.zip: nothing matches"),
    ],
)
def test_failures__messages(type_: Type, export: Path, words: tuple[str, ...], said: str) -> None:
    (export / "ds").mkdir()
    (export / "a").write_text("a")
    Path("ds").mkdir()
    Path("mine").write_text("mine")
    assert type_(*words) == Said(1, "", f"carefulctl: {said}\n")


def test_names__the_export_itself(type_: Type, daemon: FakeDaemon) -> None:
    found = type_("get", "h2:", ".")
    assert (found.status, found.err) == (1, "carefulctl: h2:/: is a directory; -r fetches it\n")
    daemon.fault = lambda question: (
        -errno.ECONNREFUSED if question.op == lib.CAREFUL_IPC_REQUEST else 0
    )
    for path in ("", "some/file"):
        found = type_("ls", f"h2:{path}")
        assert (found.status, found.out) == (1, "")
        assert found.err.startswith("carefulctl: h2: nobody answers there")


class Tree:
    """A tree at h2 and its copy by `sync` here, or the other way round."""

    def __init__(self, way: str, export: Path) -> None:
        here = Path.cwd()
        self.source, self.target = (export, here) if way == "get" else (here, export)
        self.words = ("h2:ds", ".") if way == "get" else ("ds", "h2:")
        (self.source / "ds/sub").mkdir(parents=True)
        for name in ("a", "b", "sub/c"):
            self.write(name, name)
        os.link(self.source / "ds/a", self.source / "ds/again")
        (self.source / "ds/link").symlink_to("a")

    def write(self, name: str, text: str, time_s: int = 1_000_000_000) -> None:
        self.path(name).write_text(text)
        os.utime(self.path(name), (time_s, time_s))

    def path(self, name: str) -> Path:
        return self.source / "ds" / name

    def there(self, name: str) -> Path:
        return self.target / "ds" / name


@pytest.fixture(name="tree", params=["get", "put"])
def _tree(request: pytest.FixtureRequest, type_: Type, export: Path) -> Tree:
    return Tree(request.param, export)


def test_sync__silent_unless_something_changed(type_: Type, tree: Tree) -> None:
    first = type_("sync", *tree.words)
    assert (first.status, first.err) == (0, "")
    assert "3 files" in first.out
    assert tree.there("a").samefile(tree.there("again"))
    assert type_("sync", *tree.words) == Said(0, "", "")
    tree.write("b", "other", 1_000_000_001)
    tree.path("sub/c").unlink()
    found = type_("sync", *tree.words)
    assert (found.status, found.err) == (0, "")
    assert "1 file, 5 B" in found.out
    assert "deleted" not in found.out
    assert tree.there("b").read_text() == "other"
    assert tree.there("b").stat().st_mtime == 1_000_000_001
    assert tree.there("sub/c").exists()
    assert type_("sync", *tree.words) == Said(0, "", "")


def test_sync__delete_only_when_asked(type_: Type, tree: Tree) -> None:
    type_("sync", *tree.words)
    tree.path("sub/c").unlink()
    (tree.target / "beside").write_text("mine")
    rehearsal = type_("sync", "-n", "--delete", *tree.words)
    assert rehearsal.status == 0
    assert "0 B to move, 1 to delete, 2 equal; nothing was changed" in rehearsal.out
    assert tree.there("sub/c").exists()
    found = type_("sync", "-v", "--delete", *tree.words)
    assert found.status == 0
    assert "1 deleted" in found.out
    assert not tree.there("sub/c").exists()
    assert (tree.target / "beside").exists()
    assert type_("sync", "--delete", *tree.words) == Said(0, "", "")


def test_sync__newer_stays_if_that_is_asked(type_: Type, tree: Tree) -> None:
    type_("sync", *tree.words)
    tree.there("b").write_text("newer")
    for _ in range(2):
        found = type_("sync", "-u", *tree.words)
        assert found.status == 3
        assert "1 file newer at the target and left alone" in found.out
    assert tree.there("b").read_text() == "newer"
    assert "1 file, 1 B" in type_("sync", *tree.words).out
    assert tree.there("b").read_text() == "b"


@pytest.mark.parametrize("option", ["-r", "-a", "-p"])
def test_sync__after_the_first_copy(type_: Type, tree: Tree, option: str) -> None:
    """`get -r` once kept no times: everything was newer here, and stale files stayed."""
    move = "get" if tree.words[0] == "h2:ds" else "put"
    assert type_(move, "-r", option, *tree.words).status == 0
    again = type_("sync", *tree.words)
    assert (again.status, again.err) == (0, "")
    assert "newer" not in again.out
    tree.write("b", "c", 1_577_836_800)  # a rollback: as large, and of 2020
    assert type_("sync", *tree.words).status == 0
    assert (tree.there("b").read_text(), tree.there("b").stat().st_mtime) == ("c", 1_577_836_800)


def test_sync__idle_writes_nothing(type_: Type, tree: Tree) -> None:
    set_xattr(tree.path("sub"), "user.kept", b"1")
    tree.write("large", "x" * 100_000)
    assert type_("sync", *tree.words).status == 0
    before = {one: one.lstat() for one in tree.target.rglob("*")}
    assert type_("sync", "--delete", *tree.words) == Said(0, "", "")
    assert {one: one.lstat().st_ctime_ns for one in tree.target.rglob("*")} == {
        one: was.st_ctime_ns for one, was in before.items()
    }
    tree.there("b").chmod(0o640)
    set_xattr(tree.there("sub"), "user.kept", b"2")
    assert type_("sync", *tree.words).status == 0
    assert tree.there("b").stat().st_mode == before[tree.there("b")].st_mode
    assert describe(tree.path("sub")) == describe(tree.there("sub"))
    changed = {one for one, was in before.items() if one.lstat().st_ctime_ns != was.st_ctime_ns}
    assert changed - {tree.there("sub")} == {tree.there("b")}


def test_sync__idle_with_checksums_writes_nothing(type_: Type, tree: Tree) -> None:
    """A pull once made and removed a partial file next to each file that it compared."""
    tree.write("large", "x" * 2_000_000)
    tree.write("larger", "y" * 5_000_000)  # several blocks
    assert type_("sync", *tree.words).status == 0
    every = [tree.target, *tree.target.rglob("*")]
    before = {one: one.lstat().st_ctime_ns for one in every}
    for _ in range(3):
        assert type_("sync", "-c", *tree.words) == Said(0, "", "")
    assert {one: one.lstat().st_ctime_ns for one in every} == before


def test_sync__only_blocks_that_differ_move(type_: Type, tree: Tree) -> None:
    """A file with another time is compared and gets the time, though no block moves."""
    tree.write("large", "x" * 10_000_000)
    type_("sync", *tree.words)
    os.utime(tree.path("large"), ns=(0, 5))
    assert type_("sync", *tree.words) == Said(0, "", "")
    assert tree.there("large").stat().st_mtime_ns == 5
    with tree.path("large").open("r+") as file:
        file.write("y")
    found = type_("sync", "--json", *tree.words)
    assert json.loads(found.out)["matched_bytes"] == 10_000_000 - (4 << 20)


def test_get__several_sources_and_no_target(type_: Type, export: Path) -> None:
    found = type_("get", "h2:a", "h2:b")
    assert found.status == 2
    assert "several sources: name a local target ('.')" in found.err
    assert list(Path().iterdir()) == []


def test_sync__more_to_delete_than_is_allowed(type_: Type, tree: Tree) -> None:
    type_("sync", *tree.words)
    for name in ("b", "sub/c", "again"):
        tree.path(name).unlink()
    tree.write("new", "new")
    found = type_("sync", "--delete", "--max-delete", "2", *tree.words)
    assert found.status == 3
    assert "3 names would be deleted, more than --max-delete 2" in found.err
    assert all(tree.there(name).exists() for name in ("b", "sub/c", "again", "new"))
    assert type_("sync", "--delete", "--max-delete", "3", *tree.words).status == 0
    assert not tree.there("b").exists()
    assert type_("sync", "--max-delete", "3", *tree.words).status == 2


@pytest.mark.parametrize("mounted", ["ds", "ds/sub"])
@pytest.mark.parametrize("first", [("sync",), ("sync", "--delete")])
def test_sync__a_disk_that_is_not_mounted(
    type_: Type,
    tree: Tree,
    route: Route,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mounted: str,
    first: tuple[str, ...],
) -> None:
    """An empty mount point once emptied the copy, with status 0."""
    monkeypatch.setenv("CAREFUL_STATE_DIR", str(tmp_path / "state"))
    place, words = tree.source / mounted, ("sync", "--delete", *tree.words)
    mount = ["mount", "-t", "tmpfs", "none", place]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no tmpfs: {done.stderr.strip()}")
    try:
        for name in ("sub/x", "sub/y"):
            tree.path(name).parent.mkdir(exist_ok=True)
            tree.write(name, name)
        assert type_(*first, *tree.words).status == 0
    finally:
        subprocess.run(["umount", place], check=True)
    tree.path("sub/c").unlink()
    assert type_("sync", *tree.words).status == 0
    for spelled in ("h2", "h2", "h2.lan"):  # one address has several names
        same = replace(route, host=spelled), Effect()
        monkeypatch.setattr(remote, "find", lambda *_, same=same: same)
        found = type_(*words)
        assert found.status == 3
        assert "was a mount point the last time, but not now" in found.err
        assert tree.there("sub/x").read_text() == "sub/x"
    for name in ("sub/x", "sub/y"):
        tree.there(name).unlink()
    assert type_(*words).status == 0
    assert type_(*words) == Said(0, "", "")


def test_sync__failures(type_: Type, tree: Tree) -> None:
    assert type_("sync", *tree.words).status == 0
    tree.write("b", "other", 1_000_000_001)
    tree.there("b").unlink()
    os.mkfifo(tree.there("b"))
    found = type_("sync", *tree.words)
    assert found.status == 3
    assert "ds/b: is a special file and is never replaced" in found.err
    missing = ("h2:none" if tree.words[0] == "h2:ds" else "none", tree.words[1])
    assert type_("sync", *missing).status == 3
    for words in (("h2:a", "h2:b"), ("a", "b")):
        found = type_("sync", *words)
        assert found.status == 2
        assert "one of SOURCE and TARGET must be HOST:PATH" in found.err
    for words in (("h2:a", "-"), ("null:", "h2:a"), ("h2:null:", "a")):
        found = type_("sync", *words)
        assert found.status == 2
        assert "use get or put for - and null:" in found.err


def test_sync__patterns_of_a_file(type_: Type, tree: Tree) -> None:
    Path("not").write_text("# what is not wanted\n\n+ /sub/c\n- sub/*\nagain\n; more\nl*\n")
    for name in ("sub/d", "lost"):
        tree.write(name, name)
    found = type_("sync", "--exclude-from", "not", *tree.words)
    assert (found.status, found.err) == (0, "")
    present = [str(one.relative_to(tree.there("."))) for one in tree.there(".").rglob("*")]
    assert sorted(present) == ["a", "b", "sub", "sub/c"]
    found = type_("sync", "--exclude-from", "missing", *tree.words)
    assert (found.status, found.err) == (1, "carefulctl: missing: No such file or directory\n")


_LOGS = ("logs/a.gz", "logs/b.gz", "logs/c.txt", "logs/.d.gz", "old/logs/e.gz", "x[1]", "x1")


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("logs/*.gz", ["a.gz", "b.gz"]),
        ("logs/[!a].??", ["b.gz"]),
        ("logs/.*.gz", [".d.gz"]),
        ("*/*/*.gz", ["e.gz"]),
        ("o*/logs/*", ["e.gz"]),
        ("x[1]", ["x[1]"]),  # the name as typed
        ("x[0-9]", ["x1"]),
        ("/logs/c.*", ["c.txt"]),
    ],
)
def test_get__wildcards(type_: Type, export: Path, pattern: str, names: list[str]) -> None:
    for name in _LOGS:
        (export / name).parent.mkdir(parents=True, exist_ok=True)
        (export / name).write_text(name)
    found = type_("get", f"h2:{pattern}", ".")
    assert (found.status, found.err) == (0, "")
    assert sorted(one.name for one in Path().iterdir()) == names


def test_wildcards__of_directories(type_: Type, export: Path) -> None:
    for name in _LOGS:
        (export / name).parent.mkdir(parents=True, exist_ok=True)
        (export / name).write_text(name)
    assert type_("get", "-r", "h2:*/", "all/").status == 0
    assert sorted(one.name for one in Path("all").iterdir()) == sorted(
        [".d.gz", "a.gz", "b.gz", "c.txt", "logs"]
    )
    assert type_("ls", "h2:lo*").out.split() == [".d.gz", "a.gz", "b.gz", "c.txt"]
    assert type_("ls", "h2:*o*").out.split() == ["logs/", "old/"]
    found = type_("get", "h2:logs/*.zip", ".")
    assert (found.status, found.err) == (1, "carefulctl: h2:logs/*.zip: nothing matches\n")
    found = type_("get", "h2:logs/*.gz", "-")
    assert (found.status, found.out) == (1, "")
    assert found.err == "carefulctl: -: only for a single file\n"
    found = type_("get", "--bytes", "1", "h2:logs/*.gz", "null:")
    assert "--offset, --bytes and --at: only for a single file" in found.err


def test_ls__a_host_that_does_not_answer(type_: Type, daemon: FakeDaemon) -> None:
    """A firewall looks like a host that is off, so the error has a command for both."""
    daemon.connect_status, daemon.info.port = -errno.ETIMEDOUT, 51977
    found = type_("ls", "h2:")
    assert found.status == 1
    for said in ("h2: no answer in time", "firewall-cmd --add-port=51977/udp", "ufw allow 51977"):
        assert said in found.err
