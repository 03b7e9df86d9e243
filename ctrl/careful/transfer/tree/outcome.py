"""Collects the outcomes of a transfer's files; one file's failure does not end the others."""

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

#: Errors of a file that was moved without some of its attributes.
ATTRIBUTE_LOST = (errno.ENOSYS, errno.ERANGE)
TEXTS: dict[int, Text] = {
    errno.EEXIST: REFUSED,
    errno.ENOTSUP: "is a special file",
    errno.E2BIG: "has more than 192 KiB of extended attributes, too much to copy",
    errno.ENOSYS: "the file system there cannot store all its extended attributes and ACLs",
    errno.ERANGE: "the file system there cannot store its time; the nearest is set",
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
    """Returns the word for a file that is neither regular nor a directory."""
    return _KINDS.get(stat.S_IFMT(mode), "special file")


@dataclass(frozen=True)
class Outcome:
    """Collects the outcomes of a transfer's files."""

    options: Options
    progress: Progress
    report: Result

    def fail(self, name: str, error: CarefulError) -> None:
        """Notes a failure, or raises it if it ends the whole transfer."""
        is_reset = self.options.outlasts and error.errno == errno.ECONNRESET
        if error.errno in FATAL or is_reset:
            raise error
        self._note(name, error)

    def _note(self, name: str, error: CarefulError) -> None:
        self.report.failures.append((name, str(error)))
        self.progress.failed(name, error)
        self.report.errors.append(error.with_traceback(None))  # drops the frames and what they hold

    def fail_errno(self, name: str, error_number: int, subject: str = "") -> None:
        """Notes a failure from a file's positive errno, which never ends the transfer.

        subject: of the message; "": the source.
        """
        text = os.strerror(error_number) if error_number in FATAL else TEXTS.get(error_number, "")
        self._note(name, CarefulError(error_number, text, subject or name))

    def note_far(self, name: str, attr: Attr) -> None:
        """Notes that the protocol cannot hold a time that is to be kept."""
        if self.options.keeps_times and attr.mtime_ns in FAR_NS:
            text = "its time is outside the years 1678 to 2262; the nearest is set"
            self.progress.note(f"{name}: {text}")

    def skip(self, name: str, mode: int) -> None:
        """Notes a symlink or special file.

        A symlink is skipped, since the user did not ask for links. A special file fails, as with
        scp: the user asked for it, and it cannot be copied.
        """
        if stat.S_ISLNK(mode):
            self.report.skipped.append((name, kind_of(mode)))
            self.progress.note(f"{name}: skipped, a symlink; -a copies it")
        else:
            self.fail(name, CarefulError(errno.ENOTSUP, f"is a {kind_of(mode)}, not a file", name))

    def skip_partial(self, name: str) -> None:
        """Notes a partial file, which belongs to a transfer and not to the tree."""
        self.report.skipped.append((name, "partial file"))
        self.progress.note(f"{name}: skipped, left by an interrupted transfer")

    def done(self, result: FileResult) -> None:
        self.report.singles.append(result)

    def moved(self, files: Moved) -> None:
        self.report.batches.append(files)
        self.progress.moved(files.bytes)
        self.progress.finished_all(len(files), files.names)
