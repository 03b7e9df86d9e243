"""What became of a transfer."""

from __future__ import annotations

from dataclasses import dataclass, field

from careful.transfer.losses import Lost
from careful.transfer.options import FileResult


@dataclass
class Report:
    """What a transfer did, or with dry_run would have done.

    Attributes:
        files: what was transferred.
        failures: (name, reason) of what was not.
        skipped: (name, kind) of symlinks and special files.
        equal: files that were left alone, and their bytes.
        directories: how many were made.
        links: how many symlinks and hard links were made.
        deleted: names that were removed.
        seconds: from the first request to the last sync.
        lost: what the network lost meanwhile.
    """

    files: list[FileResult] = field(default_factory=list)
    failures: list[tuple[str, str]] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    equal: list[tuple[str, int]] = field(default_factory=list)
    directories: int = 0
    links: int = 0
    deleted: list[str] = field(default_factory=list)
    seconds: float = 0.0
    lost: Lost = field(default_factory=Lost)

    @property
    def bytes(self) -> int:
        """Of all files that were transferred."""
        return sum(result.bytes for result in self.files)

    @property
    def resumed_bytes(self) -> int:
        """Of these, what earlier transfers had brought."""
        return sum(result.resumed_bytes for result in self.files)

    @property
    def matched_bytes(self) -> int:
        """Of these, what the file that was replaced had already."""
        return sum(result.matched_bytes for result in self.files)

    @property
    def moved_bytes(self) -> int:
        """What crossed the network."""
        return self.bytes - self.resumed_bytes - self.matched_bytes

    @property
    def retries(self) -> int:
        """Pieces that were asked for again."""
        return sum(result.retries for result in self.files)
