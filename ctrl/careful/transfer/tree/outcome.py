"""Where a transfer tells what becomes of its files; one file's failure is its own."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass

from careful.errors import FATAL, CarefulError, Text
from careful.transfer.options import FileResult, Options, Progress
from careful.transfer.protocol.entries import FAR_NS, Attr
from careful.transfer.result import Moved, Result
from careful.transfer.tree.existing import REFUSED

#: The answer for a file that came without some of its attributes.
UNKEPT = (errno.ENOSYS, errno.ERANGE)
TEXTS: dict[int, Text] = {
    errno.EEXIST: REFUSED,
    errno.ENOTSUP: "is a special file",
    errno.E2BIG: "has more than 192 KiB of extended attributes, too much to copy",
    errno.ENOSYS: "the file system there cannot hold all of its extended attributes and ACLs",
    errno.ERANGE: "the file system there cannot hold its time; it has the nearest",
    errno.ESTALE: "changed while it was being transferred",
}


_KINDS = {
    stat.S_IFLNK: "symlink",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "character device",
    stat.S_IFBLK: "block device",
}


def kind_of(mode: int) -> str:
    """What people call what is neither a file nor a directory."""
    return _KINDS.get(stat.S_IFMT(mode), "special file")


@dataclass(frozen=True)
class Outcome:
    """Where a transfer tells what becomes of its files."""

    options: Options
    progress: Progress
    report: Result

    def fail(self, name: str, error: CarefulError) -> None:
        """Note a failure, or raise it if it is everybody's."""
        is_reset = self.options.outlasts and error.errno == errno.ECONNRESET
        if error.errno in FATAL or is_reset:
            raise error
        self._note(name, error)

    def _note(self, name: str, error: CarefulError) -> None:
        self.report.failures.append((name, str(error)))
        self.progress.failed(name, error)
        self.report.errors.append(error.with_traceback(None))  # nor what its frames hold

    def fail_errno(self, name: str, code: int, what: str = "") -> None:
        """Note a failure that an errno of a file says: it is nobody else's, whatever it is.

        Args:
            name: of the source.
            code: a positive errno.
            what: what it is about, if not the source.
        """
        text = os.strerror(code) if code in FATAL else TEXTS.get(code, "")
        self._note(name, CarefulError(code, text, what or name))

    def note_far(self, name: str, attr: Attr) -> None:
        """Say that a time could not be told to the other end, if that is so and it is kept."""
        if self.options.keeps_times and attr.mtime_ns in FAR_NS:
            text = "its time is outside the years 1678 to 2262; the nearest is set"
            self.progress.note(f"{name}: {text}")

    def skip(self, name: str, mode: int) -> None:
        """Note what is neither a file nor a directory.

        Symlinks are skipped because nobody asked for them; a special file is what was asked
        for and cannot be had: a failure, as it is to scp.
        """
        if stat.S_ISLNK(mode):
            self.report.skipped.append((name, kind_of(mode)))
            self.progress.note(f"{name}: skipped, a symlink; -a copies it")
        else:
            self.fail(name, CarefulError(errno.ENOTSUP, f"is a {kind_of(mode)}, not a file", name))

    def skip_partial(self, name: str) -> None:
        """Note what is no file of a tree's, but of a transfer's."""
        self.report.skipped.append((name, "partial file"))
        self.progress.note(f"{name}: skipped, left by an interrupted transfer")

    def done(self, result: FileResult) -> None:
        """A file is there."""
        self.report.add(result)

    def moved(self, files: Moved) -> None:
        """A batch of files is there."""
        self.report.add_batch(files)
        self.progress.moved(files.bytes)
        self.progress.finished_all(len(files), files.names)
