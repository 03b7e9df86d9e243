"""What `get` and `put` are asked for: several sources, trees, and what became of them.

Owns names (where a source goes), the order (directories before what is in them),
several files in flight, and that one file's failure does not end the others.
Symlinks and special files are skipped by name (rsync's habit without -l).
"""

from __future__ import annotations

import errno
import os
import posixpath
import stat
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from careful.errors import CarefulError, from_os, meaning
from careful.transfer.block import Attr, BlockClient, relative
from careful.transfer.files import (
    FileResult,
    Options,
    Progress,
    all_of,
    get_file,
    in_thread,
    put_file,
)
from careful.transfer.local import current_umask, shown, sync_directory

#: Failures that are the connection's or the peer's: no other file would fare better.
_FATAL = {
    errno.ENOTCONN,
    errno.ETIMEDOUT,
    errno.ECONNREFUSED,
    errno.ECONNABORTED,
    errno.EHOSTUNREACH,
    errno.ENETUNREACH,
    errno.ENETDOWN,
}

_Item = TypeVar("_Item")


@dataclass
class Report:
    """What a transfer did.

    Attributes:
        files: what was transferred.
        failures: (name, reason) of what was not.
        skipped: (name, kind) of symlinks and special files.
        directories: how many were made.
        seconds: from the first request to the last sync.
    """

    files: list[FileResult] = field(default_factory=list)
    failures: list[tuple[str, str]] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    directories: int = 0
    seconds: float = 0.0

    @property
    def bytes(self) -> int:
        """Of all files that were transferred."""
        return sum(result.bytes for result in self.files)

    @property
    def resumed_bytes(self) -> int:
        """Of these, what earlier transfers had brought."""
        return sum(result.resumed_bytes for result in self.files)

    @property
    def retries(self) -> int:
        """Pieces that were asked for again."""
        return sum(result.retries for result in self.files)


@dataclass(frozen=True)
class _Job:
    """A file to transfer; name is what a failure is reported under."""

    source: str
    target: str
    name: str
    nbytes: int


def _kind(mode: int) -> str:
    if stat.S_ISLNK(mode):
        return "symlink"
    return "special file"


class _Transfer:
    """What get and put share."""

    def __init__(self, remote: BlockClient, options: Options, progress: Progress) -> None:
        self.remote = remote
        self.options = options
        self.progress = progress
        self.report = Report()
        self.jobs: list[_Job] = []

    def fail(self, name: str, error: CarefulError) -> None:
        """Note a failure, or raise it if it is everybody's."""
        if error.errno in _FATAL:
            raise error
        self.report.failures.append((name, str(error)))
        self.progress.note(str(error))

    def skip(self, name: str, mode: int) -> None:
        """Note what is neither a file nor a directory."""
        self.report.skipped.append((name, _kind(mode)))
        self.progress.note(f"{name}: skipped, it is a {_kind(mode)}")

    async def run_jobs(self) -> None:
        """Transfer the files that were found, several at a time."""
        await _in_turns(self.jobs, self._one, self.options.files_in_flight)

    async def _one(self, job: _Job) -> None:
        try:
            self.report.files.append(await self.transfer(job))
        except CarefulError as error:
            self.fail(job.name, error)
        finally:
            self.progress.finished(job.name)

    async def transfer(self, job: _Job) -> FileResult:
        """Move one file."""
        raise NotImplementedError


class _Get(_Transfer):
    def __init__(self, remote: BlockClient, options: Options, progress: Progress) -> None:
        super().__init__(remote, options, progress)
        self.folders: set[str] = set()
        self.made: list[tuple[str, int]] = []

    async def transfer(self, job: _Job) -> FileResult:
        return await get_file(self.remote, job.source, job.target, self.options, self.progress)

    def add(self, source: str, target: str, attr: Attr) -> None:
        """Plan one file."""
        name = self.remote.name(shown(source))
        self.jobs.append(_Job(source, target, name, attr.bytes))
        self.folders.add(os.path.dirname(target))
        self.progress.expect(1, attr.bytes)

    def make_directory(self, target: str, mode: int) -> None:
        """Make a directory that can be written until the end."""
        try:
            os.mkdir(target, 0o777 & ~current_umask() | 0o700)
        except FileExistsError:
            if not os.path.isdir(target):
                text = "exists already, and is no directory"
                raise CarefulError(errno.ENOTDIR, text, shown(target)) from None
            return
        except OSError as error:
            raise from_os(error, shown(target)) from None
        self.report.directories += 1
        self.made.append((target, mode & 0o777 & ~current_umask()))
        self.folders.add(os.path.dirname(target))

    async def add_tree(self, source: str, target: str, mode: int) -> None:
        """Plan all that is below a directory."""
        entries = await self.remote.listing(source, recursive=True)
        self.make_directory(target, mode)
        barred: set[str] = set()  # directories that could not be made
        for entry in entries:
            path = entry.name if source == "." else posixpath.join(source, entry.name)
            name = self.remote.name(shown(path))
            local = os.path.join(target, entry.name)
            if os.path.dirname(entry.name) in barred:
                if entry.attr.is_dir:
                    barred.add(entry.name)
                continue
            if entry.error:
                self.fail(name, CarefulError(entry.error, meaning(entry.error), name))
            elif entry.attr.is_dir:
                try:
                    self.make_directory(local, entry.attr.mode)
                except CarefulError as error:
                    barred.add(entry.name)
                    self.fail(name, error)
            elif entry.attr.is_file:
                self.add(path, local, entry.attr)
            else:
                self.skip(name, entry.attr.mode)

    def finish(self) -> None:
        """Give directories their modes, and make all names durable."""
        for path, mode in reversed(self.made):
            with suppress(OSError):
                if stat.S_IMODE(os.stat(path).st_mode) != mode:
                    os.chmod(path, mode)
        if self.options.sync:
            for path in self.folders:
                with suppress(FileNotFoundError):
                    sync_directory(path)


async def get(
    remote: BlockClient,
    sources: list[str],
    target: str,
    recursive: bool,
    options: Options,
    progress: Progress,
) -> Report:
    """Fetch files and trees.

    Args:
        remote: the peer's tree.
        sources: paths in it.
        target: local path: a directory to put them in, or, for one source, its name.
        recursive: whether directories are fetched.
        options: how.
        progress: told of what happens.

    Raises:
        CarefulError: nothing could be done, or the peer is gone.
    """
    started = time.monotonic()
    into = os.path.isdir(target)
    if len(sources) > 1 and not into:
        raise CarefulError(errno.ENOTDIR, "is no directory to put several files in", shown(target))
    work = _Get(remote, options, progress)
    for source in map(relative, sources):
        name = remote.name(shown(source))
        try:
            attr = await remote.stat(source)
            base = "" if source == "." else posixpath.basename(source)
            local = os.path.join(target, base) if into and base else target
            if attr.is_dir and recursive:
                await work.add_tree(source, local, attr.mode)
            elif attr.is_dir:
                raise CarefulError(errno.EISDIR, "is a directory; -r fetches it", name)
            elif attr.is_file or attr.is_link:
                work.add(source, local, attr)
            else:  # asked for by name: not merely skipped
                raise CarefulError(errno.EINVAL, f"is a {_kind(attr.mode)}, no file", name)
        except CarefulError as error:
            work.fail(name, error)
    await work.run_jobs()
    await in_thread(work.finish)
    work.report.seconds = time.monotonic() - started
    return work.report


class _Put(_Transfer):
    async def transfer(self, job: _Job) -> FileResult:
        return await put_file(self.remote, job.source, job.target, self.options, self.progress)

    def add(self, source: str, target: str, nbytes: int) -> None:
        """Plan one file."""
        self.jobs.append(_Job(source, target, shown(source), nbytes))
        self.progress.expect(1, nbytes)

    async def add_tree(self, source: str, target: str) -> None:
        """Make the directories of a tree, level by level, and plan its files."""
        level = [(source, target)]
        while level:
            below: list[tuple[str, str]] = []

            async def one(pair: tuple[str, str], found: list[tuple[str, str]] = below) -> None:
                try:
                    found += await self._directory(*pair)
                except CarefulError as error:
                    self.fail(shown(pair[0]), error)

            await _in_turns(level, one, self.options.files_in_flight)
            level = below

    async def _directory(self, source: str, target: str) -> list[tuple[str, str]]:
        """Make one directory and plan its files; the directories in it."""
        try:
            mode = stat.S_IMODE(os.stat(source).st_mode)
            with os.scandir(source) as scan:
                entries = sorted(scan, key=lambda entry: entry.name)
        except OSError as error:
            raise from_os(error, shown(source)) from None
        await self.remote.mkdir(target, mode & 0o777 | 0o700)
        self.report.directories += 1
        below = []
        for entry in entries:
            path = posixpath.join(target, entry.name)
            try:
                attr = entry.stat(follow_symlinks=False)
            except OSError as error:
                self.fail(shown(entry.path), from_os(error, shown(entry.path)))
                continue
            if stat.S_ISDIR(attr.st_mode):
                below.append((entry.path, path))
            elif stat.S_ISREG(attr.st_mode):
                self.add(entry.path, path, attr.st_size)
            else:
                self.skip(shown(entry.path), attr.st_mode)
        return below


async def _in_turns(
    items: Sequence[_Item], one: Callable[[_Item], Coroutine[Any, Any, None]], width: int
) -> None:
    """Do one(item) for each, `width` at a time."""
    todo = iter(items)

    async def worker() -> None:
        for item in todo:
            await one(item)

    await all_of(*(worker() for _ in range(min(width, len(items)))))


async def _stat_or_none(remote: BlockClient, path: str) -> Attr | None:
    try:
        return await remote.stat(path)
    except CarefulError as error:
        if error.errno == errno.ENOENT:
            return None
        raise


async def put(
    remote: BlockClient,
    sources: Iterable[str],
    target: str,
    recursive: bool,
    options: Options,
    progress: Progress,
) -> Report:
    """Send files and trees.

    Args:
        remote: the peer's tree.
        sources: local paths.
        target: path in it: a directory to put them in, or, for one source, its name.
        recursive: whether directories are sent.
        options: how.
        progress: told of what happens.

    Raises:
        CarefulError: nothing could be done, or the peer is gone.
    """
    started = time.monotonic()
    sources = list(sources)
    slash = target.endswith("/")
    target = relative(target)
    there = await _stat_or_none(remote, target)
    into = there is not None and there.is_dir
    if not into and (len(sources) > 1 or (slash and not recursive)):
        raise CarefulError(errno.ENOTDIR, "is no directory", remote.name(shown(target)))
    work = _Put(remote, options, progress)
    for source in sources:
        try:
            attr = os.stat(source)
            base = os.path.basename(os.path.abspath(source))
            path = posixpath.normpath(posixpath.join(target, base)) if into else target
            if stat.S_ISDIR(attr.st_mode) and recursive:
                await work.add_tree(source, path)
            elif stat.S_ISDIR(attr.st_mode):
                raise CarefulError(errno.EISDIR, "is a directory; -r sends it", shown(source))
            else:
                work.add(source, path, attr.st_size)
        except OSError as error:
            work.fail(shown(source), from_os(error, shown(source)))
    await work.run_jobs()
    work.report.seconds = time.monotonic() - started
    return work.report
