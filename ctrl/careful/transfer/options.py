"""Options of a transfer, its progress, and the result for one file."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, Protocol

from careful._abi import lib
from careful.errors import CarefulError
from careful.transfer.filters import Filters
from careful.transfer.pace import RateLimit


class Mounts(Protocol):
    """Remembers the mount points of a source; `trees` is source and target."""

    def read(self, trees: tuple[str, str]) -> set[str]:
        """Returns the names in the source that were mount points the last time."""

    def write(self, trees: tuple[str, str], names: set[str]) -> None:
        """Stores the names that are mount points now."""


@dataclass(frozen=True)
class Options:
    """How files move.

    Attributes:
        block_bytes: payload of one operation; at most 1 GiB.
        blocks_in_flight: of one file.
        files_in_flight: of a tree.
        replace: whether to replace existing files.
        digest: whether each block carries its XXH3, checked where it was written.
        blake3: whether to compute and compare each file's BLAKE3 at both ends.
        fsync: when files become durable. "file": each before it gets its name. "end": all at once,
            by one sync of the file system. "none": when the kernel writes them.
        limit: bytes per second of all files together; None: no limit.
        preserve: whether to set modes, times and, if permitted, owners.
        links: whether to make symlinks; else they are skipped.
        hard_links: whether several names of one file stay one file.
        xattrs: whether to set extended attributes and ACLs.
        sparse: whether zeros become holes; holes stay holes in any case.
        times: whether to set times.
        update: whether to leave files of the same size and time alone; sets times, too.
        keep_newer: whether to leave files alone that are newer at the target.
        make_path: whether to make missing directories above the target.
        checksum: whether to compare blocks by digest first and move only those that differ.
        delete: whether to remove names from a tree that the source lacks.
        max_delete: the most names to remove; if there are more, none is removed. None: no limit.
        mounts: remembers mount points of the source, or None.
        dry_run: whether to change nothing.
        filters: selects names of a tree.
        restart: whether to throw away partial files of earlier transfers.
        restart_changed: whether to do so if the source has changed; else the transfer fails.
        fail_on_loss: whether a loss that ends an epoch ends the transfer; else lost data is
            requested again.
        outlasts: whether repeated resets of the session end the transfer, so that another try
            can continue it; else only the file at hand fails.
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

    def for_retry(self) -> Options:
        """Returns the options for another try, which continues what the first one left."""
        limit = RateLimit(self.limit.bytes_per_s) if self.limit else None
        changed = self.restart or self.restart_changed  # the first try already started over
        return replace(self, restart=False, restart_changed=changed, limit=limit)

    @property
    def sync(self) -> bool:
        """Reports whether a file is durable before it gets its name."""
        return self.fsync == "file"

    @property
    def reads_target(self) -> bool:
        """Reports whether the files at the target have to be read."""
        return self.update or self.keep_newer or self.checksum or self.delete or self.dry_run

    @property
    def keeps_times(self) -> bool:
        return self.preserve or self.times or self.update

    @property
    def batch_flags(self) -> int:
        """Returns which attributes of a file to set: CAREFUL_BATCH_*."""
        flags = 0
        if self.preserve:
            flags |= lib.CAREFUL_BATCH_MODE | lib.CAREFUL_BATCH_OWNER | lib.CAREFUL_BATCH_TIME
        elif self.keeps_times:
            flags |= lib.CAREFUL_BATCH_TIME
        return flags | (lib.CAREFUL_BATCH_XATTRS if self.xattrs else 0)


class Progress:
    """Receives the events of a transfer; this class ignores them."""

    def expect(self, files: int, nbytes: int) -> None:
        """Adds to the files and bytes that are expected."""

    def moved(self, nbytes: int) -> None:
        """Counts bytes that were moved and are in place."""

    def present(self, nbytes: int) -> None:
        """Counts bytes that were already in place."""

    def retried(self) -> None:
        """Counts a piece that was lost or damaged and is requested again."""

    def finished(self, name: str) -> None:
        """Counts a file that is complete or failed."""

    def finished_all(self, count: int, names: Callable[[], Iterable[str]]) -> None:
        """Counts complete files; names() is called only if the names are needed."""

    def note(self, text: str) -> None:
        """Shows a person a remark."""

    def failed(self, name: str, error: CarefulError) -> None:
        self.note(str(error))


class FileResult(NamedTuple):
    """A file that was transferred.

    Attributes:
        source: its path at the source.
        destination: its path at the target.
        bytes: its size.
        digest: XXH3 over its blocks' digests, or its BLAKE3; None: no digest.
        retries: pieces that were requested again.
        resumed_bytes: bytes that an earlier transfer moved.
        matched_bytes: bytes that the replaced file had.
        hole_bytes: bytes in holes, which were not sent.
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
