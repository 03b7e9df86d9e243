"""The result of a transfer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from careful.errors import CarefulError
from careful.html import Grid, rendered
from careful.transfer.lost_frames import Lost
from careful.transfer.options import FileResult
from careful.units import shown_rate


class Moved(Protocol):
    """Files that were moved together; names are computed only on demand."""

    @property
    def bytes(self) -> int:
        pass

    def __len__(self) -> int: ...
    def names(self) -> Iterator[str]:
        """Yields the sources' names, printable."""

    def results(self) -> Iterator[FileResult]:
        """Yields the result of each file."""


@dataclass
class Result:
    """The result of a transfer, or with dry_run of a rehearsal.

    Attributes:
        singles: files that were moved one by one.
        batches: files that were moved together.
        failures: (name, reason) of each failure.
        errors: the failures as exceptions.
        skipped: (name, kind) of symlinks and special files.
        equal: (name, bytes) of files left alone because they are equal.
        newer: (name, bytes) of files left alone because they are newer at the target.
        directories: how many were made.
        trees: how many source directories were compared or copied.
        links: how many symlinks and hard links were made.
        deleted: names that were removed.
        seconds: from the first request to the last sync.
        lost: frames that the network lost meanwhile.
        batch_retries: pieces of batches and listings that were requested again.
    """

    singles: list[FileResult] = field(default_factory=list)
    batches: list[Moved] = field(default_factory=list)
    failures: list[tuple[str, str]] = field(default_factory=list)
    errors: list[CarefulError] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    equal: list[tuple[str, int]] = field(default_factory=list)
    newer: list[tuple[str, int]] = field(default_factory=list)
    directories: int = 0
    trees: int = 0
    links: int = 0
    deleted: list[str] = field(default_factory=list)
    seconds: float = 0.0
    lost: Lost = field(default_factory=Lost)
    batch_retries: int = 0

    def _repr_html_(self) -> str:
        rows: list[tuple[str, object]] = [
            ("files", self.files_count),
            ("bytes", self.bytes),
            ("bytes across the network", self.moved_bytes),
            ("seconds", self.seconds),
            ("rate", shown_rate(self.moved_bytes / self.seconds) if self.seconds else "-"),
            ("left alone", len(self.equal) + len(self.newer)),
        ]
        failed = Grid("failed", ("name", "reason"), self.failures)
        return rendered([Grid("", ("", ""), rows), *([failed] if self.failures else [])])

    @property
    def files(self) -> list[FileResult]:
        return [*self.singles, *(one for moved in self.batches for one in moved.results())]

    @property
    def first_checked(self) -> FileResult | None:
        """Returns the first result with a digest, or None."""
        firsts = [*self.singles, *(next(moved.results()) for moved in self.batches)]
        return next((one for one in firsts if one.digest is not None), None)

    @property
    def files_count(self) -> int:
        return len(self.singles) + sum(map(len, self.batches))

    @property
    def bytes(self) -> int:
        single_bytes = sum(result.bytes for result in self.singles)
        return single_bytes + sum(moved.bytes for moved in self.batches)

    @property
    def resumed_bytes(self) -> int:
        """Returns the bytes that earlier transfers had moved."""
        return sum(result.resumed_bytes for result in self.singles)

    @property
    def matched_bytes(self) -> int:
        """Returns the bytes that the replaced files already had."""
        return sum(result.matched_bytes for result in self.singles)

    @property
    def moved_bytes(self) -> int:
        """Returns the bytes that crossed the network."""
        spared = sum(one.resumed_bytes + one.hole_bytes for one in self.singles)
        return self.bytes - spared - self.matched_bytes

    @property
    def is_idle(self) -> bool:
        """Reports whether nothing moved, changed or failed, and no target file was newer."""
        made = self.files_count or self.links or self.directories or self.deleted
        return not (made or self.failures or self.newer)

    @property
    def retries(self) -> int:
        """Returns how many pieces were requested again."""
        return self.batch_retries + sum(result.retries for result in self.singles)
