"""How files are to be moved, who watches, and what became of one file."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, Protocol

from careful._abi import lib
from careful.errors import CarefulError
from careful.transfer.filters import Filters
from careful.transfer.pace import RateLimit


class Mounts(Protocol):
    """Remembers which directories of a source were mount points; trees: source and target."""

    def read(self, trees: tuple[str, str]) -> set[str]:
        """The names in the source that were mount points the last time."""

    def write(self, trees: tuple[str, str], names: set[str]) -> None:
        """Keep the names that are mount points now."""


@dataclass(frozen=True)
class Options:
    """How files move.

    Attributes:
        block_bytes: payload of one operation; at most 1 GiB.
        blocks_in_flight: of one file.
        files_in_flight: of a tree.
        replace: whether existing files may be replaced.
        digest: whether each block carries its XXH3, checked where it was written.
        blake3: whether each file's BLAKE3 is computed at both ends, and compared.
        fsync: when what came is made durable: each "file" before it gets its name, all at
            the "end" by one sync of the file system, or "none": when the kernel likes.
        limit: of the bytes per second of all files together; None: none.
        preserve: whether modes, times and, as far as one may, owners are the source's.
        links: whether symlinks are made; else they are skipped.
        hard_links: whether names of one file become names of one file.
        xattrs: whether extended attributes and ACLs are the source's.
        sparse: whether zeros become holes; holes stay holes in any case.
        times: whether times are the source's.
        update: whether files of the same size and time are left alone; times are kept then, too.
        keep_newer: whether files that are newer at the target are left alone.
        make_path: whether missing directories above the target are made.
        checksum: whether blocks that are equal are found by their digests first.
        delete: whether what the source does not have is removed from a tree.
        max_delete: if more names than that would be removed, none is; None: no such bound.
        mounts: remembers mount points of the source; None: nobody does.
        dry_run: whether nothing is changed.
        filters: what of a tree is meant.
        restart: whether what an earlier transfer left is thrown away, not continued.
        restart_changed: whether that is so where the source has changed since; else it is refused.
        fail_on_loss: whether a frame that the network loses ends the transfer; else what
            it carried is asked for again.
        outlasts: whether a session that is reset again and again ends the transfer, which goes
            on later; else that is the failure of one file.
    """

    block_bytes: int = 4 << 20
    blocks_in_flight: int = 8
    files_in_flight: int = 16
    replace: bool = False
    digest: bool = True
    blake3: bool = False
    fsync: Literal["file", "end", "none"] = "file"
    limit: RateLimit | None = None
    preserve: bool = False
    links: bool = False
    hard_links: bool = False
    xattrs: bool = False
    sparse: bool = False
    times: bool = False
    update: bool = False
    keep_newer: bool = False
    make_path: bool = False
    checksum: bool = False
    delete: bool = False
    max_delete: int | None = None
    mounts: Mounts | None = None
    dry_run: bool = False
    filters: Filters = field(default_factory=Filters)
    restart: bool = False
    restart_changed: bool = False
    fail_on_loss: bool = False
    outlasts: bool = False

    def again(self) -> Options:
        """The same for another try, which goes on with what this one left."""
        limit = RateLimit(self.limit.bytes_per_s) if self.limit else None
        changed = self.restart or self.restart_changed  # also of files that this one did not begin
        return replace(self, restart=False, restart_changed=changed, limit=limit)

    @property
    def sync(self) -> bool:
        """Reports whether a file is durable before it gets its name."""
        return self.fsync == "file"

    @property
    def looks(self) -> bool:
        """Reports whether what is at the target matters."""
        return self.update or self.keep_newer or self.checksum or self.delete or self.dry_run

    @property
    def keeps_times(self) -> bool:
        """Reports whether a file gets its source's time."""
        return self.preserve or self.times or self.update

    @property
    def batch_flags(self) -> int:
        """What of a file's attributes is set: CAREFUL_BATCH_*."""
        flags = 0
        if self.preserve:
            flags |= lib.CAREFUL_BATCH_MODE | lib.CAREFUL_BATCH_OWNER | lib.CAREFUL_BATCH_TIME
        elif self.keeps_times:
            flags |= lib.CAREFUL_BATCH_TIME
        return flags | (lib.CAREFUL_BATCH_XATTRS if self.xattrs else 0)


class Progress(Protocol):
    """What a transfer tells whoever watches it."""

    def expect(self, files: int, nbytes: int) -> None:
        """So many files and bytes are to come, in addition."""

    def moved(self, nbytes: int) -> None:
        """So many bytes came across and are in place."""

    def present(self, nbytes: int) -> None:
        """So many bytes need not come: they were in place already."""

    def retried(self) -> None:
        """A piece was lost or damaged and is asked for again."""

    def finished(self, name: str) -> None:
        """A file is complete, or failed."""

    def finished_all(self, count: int, names: Callable[[], Iterable[str]]) -> None:
        """So many files are complete; what they are called, who wants to know can ask."""

    def note(self, text: str) -> None:
        """Something a person should know."""

    def failed(self, name: str, error: CarefulError) -> None:
        """A name's transfer failed, and why."""


class Silent:
    """A Progress that nobody watches."""

    def expect(self, files: int, nbytes: int) -> None: ...
    def moved(self, nbytes: int) -> None: ...
    def present(self, nbytes: int) -> None: ...
    def retried(self) -> None: ...
    def finished(self, name: str) -> None: ...
    def finished_all(self, count: int, names: Callable[[], Iterable[str]]) -> None: ...
    def note(self, text: str) -> None: ...
    def failed(self, name: str, error: CarefulError) -> None:
        self.note(str(error))


class FileResult(NamedTuple):
    """A file that was transferred.

    Attributes:
        source: where from.
        destination: where to.
        bytes: its size.
        digest: XXH3 over its blocks' digests, or its BLAKE3; None: switched off.
        retries: pieces that were asked for again.
        resumed_bytes: of its bytes, those that an earlier transfer had brought.
        matched_bytes: of its bytes, those that the file it replaced had.
        hole_bytes: of its bytes, those that are holes, which were not sent.
        is_blake3: whether the digest is BLAKE3, of 256 bits.
    """

    source: str
    destination: str
    bytes: int
    digest: int | None
    retries: int
    resumed_bytes: int = 0
    matched_bytes: int = 0
    is_blake3: bool = False
    hole_bytes: int = 0
