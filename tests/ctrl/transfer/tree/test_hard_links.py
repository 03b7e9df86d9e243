"""Second names of a file follow the same rules at the target as first names."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import transfers
from careful.daemon.route import Route
from careful.transfer.options import Options, Progress
from fake_daemon import FakeDaemon

BLOCK = 4096
ARCHIVE = Options(
    block_bytes=BLOCK, preserve=True, links=True, hard_links=True, xattrs=True, fsync="none"
)
UPDATE = replace(ARCHIVE, update=True, keep_newer=True, replace=True)
OLD, NEW = 1_000_000_007, 2_000_000_007


class Ends:
    """A directory whose names are one file, and its target."""

    def __init__(self, way: str, route: Route, here: Path, there: Path) -> None:
        self.way, self.route = way, route
        source, target = (there, here) if way == "get" else (here, there)
        self.source, self.target = source / "tree", target / "new"

    def names(self, data: bytes, *names: str) -> None:
        self.source.mkdir()
        first = self.source / names[0]
        first.write_bytes(data)
        os.utime(first, ns=(0, OLD))
        for name in names[1:]:
            os.link(first, self.source / name)

    def there(self, name: str, data: bytes, mtime: int) -> None:
        self.target.mkdir(exist_ok=True)
        path = self.target / name
        path.unlink(missing_ok=True)
        path.write_bytes(data)
        os.utime(path, ns=(0, mtime))

    def run(self, options: Options) -> Any:
        if self.way == "get":
            target = str(self.target)
            return transfers.get(self.route, ["tree/"], target, True, options, Progress())
        source = f"{self.source}/"
        return transfers.put(self.route, [source], "new", True, options, Progress())

    def holds(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.target.iterdir()}

    def files(self) -> list[set[str]]:
        """Returns groups of the target's names that are one file."""
        found: dict[int, set[str]] = {}
        for path in sorted(self.target.iterdir()):
            found.setdefault(path.stat().st_ino, set()).add(path.name)
        return list(found.values())


@pytest.fixture(params=["get", "put"])
def ends(request: pytest.FixtureRequest, route: Route, daemon: FakeDaemon, tmp_path: Path) -> Ends:
    (tmp_path / "here").mkdir()
    return Ends(request.param, route, tmp_path / "here", daemon.root)


@pytest.fixture(params=[1, 5 * BLOCK], ids=["small", "large"])
def data(request: pytest.FixtureRequest) -> bytes:
    return os.urandom(request.param)


def base(names: list[tuple[str, Any]]) -> list[str]:
    return sorted(Path(name).name for name, _ in names)


def test_update__newer_second_name_stays(ends: Ends, data: bytes) -> None:
    """An editor broke the link at the target, and its file is newer."""
    ends.names(data, "a", "b", "c")
    assert ends.run(UPDATE).failures == []
    assert ends.files() == [{"a", "b", "c"}]
    ends.there("b", b"mine", NEW)
    for _ in range(2):
        report = ends.run(UPDATE)
        assert (report.failures, base(report.newer)) == ([], ["b"])
        assert ends.holds() == {"a": data, "b": b"mine", "c": data}
        assert ends.files() == [{"a", "c"}, {"b"}]


def test_update__newer_first_name_stays_alone(ends: Ends, data: bytes) -> None:
    """Files that do not belong to the source are not linked to the source's other names."""
    ends.names(data, "a", "b", "c")
    ends.there("a", b"mine", NEW)
    ends.there("b", data, OLD)
    for links in (1, 0):
        report = ends.run(UPDATE)
        assert (report.failures, base(report.newer), report.links) == ([], ["a"], links)
        assert ends.holds() == {"a": b"mine", "b": data, "c": data}
        assert ends.files() == [{"a"}, {"b", "c"}]


def test_update__an_older_second_name_is_linked(ends: Ends, data: bytes) -> None:
    ends.names(data, "a", "b")
    ends.there("b", b"before", OLD - 1)
    assert ends.run(UPDATE).failures == []
    assert ends.files() == [{"a", "b"}]


@pytest.mark.parametrize("same_size", [False, True])
def test_archive__refused_first_name(ends: Ends, data: bytes, same_size: bool) -> None:
    """The other names arrive as one file, and stay one at the next run."""
    ends.names(data, "a", "b", "c")
    mine = bytes(len(data)) + b"longer" * (not same_size)
    ends.there("a", mine, OLD)
    rehearsed = ends.run(replace(ARCHIVE, dry_run=True))
    assert (base(rehearsed.failures), rehearsed.files_count, rehearsed.links) == (["a"], 1, 1)
    for files in (1, 0):
        report = ends.run(ARCHIVE)
        assert (base(report.failures), report.files_count) == (["a"], files)
        assert ends.holds() == {"a": mine, "b": data, "c": data}
        assert ends.files() == [{"a"}, {"b", "c"}]


def test_archive__first_name_cannot_be_made(ends: Ends, data: bytes) -> None:
    """The directory of the first name cannot be made, so the file moves under the next name."""
    ends.names(data, "one", "b", "c")
    (ends.source / "d").mkdir()
    (ends.source / "one").rename(ends.source / "d/a")
    ends.there("d", b"mine", OLD)
    report = ends.run(ARCHIVE)
    assert base(report.failures) == ["d"]
    assert ends.holds() == {"b": data, "c": data, "d": b"mine"}
    assert ends.files() == [{"b", "c"}, {"d"}]


def test_archive__twice(ends: Ends, data: bytes) -> None:
    """Without -f an equal separate file stays separate; linked names stay one file."""
    ends.names(data, "a", "b", "c")
    assert ends.run(ARCHIVE).failures == []
    ends.there("b", data, OLD)
    report = ends.run(ARCHIVE)
    assert (report.failures, "b" in base(report.equal), report.links) == ([], True, 0)
    assert ends.files() == [{"a", "c"}, {"b"}]
    assert ends.run(replace(ARCHIVE, replace=True)).failures == []
    assert ends.files() == [{"a", "b", "c"}]
