"""Options and progress of get() and put() in careful.files."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple, TypedDict

from careful.errors import CarefulError
from careful.jsonout import Json
from careful.transfer.filters import Filters, rules
from careful.transfer.options import Options
from careful.transfer.options import Progress as Events
from careful.transfer.pace import RateLimit

_log = logging.getLogger("careful.files")


class Progress(NamedTuple):
    """How far a transfer is.

    Attributes:
        files_done: files that are complete, left alone or failed.
        files_expected: files found so far.
        bytes_done: bytes in place.
        bytes_expected: bytes of all files found so far.
        name: the file that ended last, or "".
    """

    files_done: int = 0
    files_expected: int = 0
    bytes_done: int = 0
    bytes_expected: int = 0
    name: str = ""


Watcher = Callable[[Progress], object]


class TransferOptions(TypedDict, total=False):
    """Keywords of get() and put(). By default, digest is "xxh3", fsync "file", no other is set.

    Attributes:
        replace: replace existing files that differ.
        update: replace existing files that are older; leave newer ones alone.
        checksum: replace existing files, and move only the blocks that differ.
        archive: recursive; keep modes, owners, times, links and extended attributes.
        delete: remove names from the target's tree that the source lacks.
        max_delete: the most names to remove; if there are more, none is removed, a failure.
        make_path: make missing directories above the target.
        dry_run: change nothing, and report what would change.
        sparse: make holes of zeros; holes stay holes in any case.
        include: patterns of names in trees to copy, whatever `exclude` says.
        exclude: patterns of names to leave out, like rsync's.
        digest: computed for each file at both ends, and compared.
        fsync: when files become durable: "file": each before it gets its name; "end": all at the
            end; "none": when the kernel writes them.
        restart: throw away partial files of an interrupted transfer.
        fail_on_loss: end the transfer if a loss ends an epoch (LossError, a
            ConnectionError); else lost data is requested again.
        block_bytes: payload of one operation, 4 KiB to 1 GiB; default 4 MiB.
        blocks_in_flight: of one file, 1 to 64; default 8.
        files_in_flight: 1 to 30; default 16.
        rate_limit_bytes_per_s: of all files together.
    """

    replace: bool
    update: bool
    checksum: bool
    archive: bool
    delete: bool
    max_delete: int
    make_path: bool
    dry_run: bool
    sparse: bool
    include: Sequence[str]
    exclude: Sequence[str]
    digest: Literal["xxh3", "blake3", "none"]
    fsync: Literal["file", "end", "none"]
    restart: bool
    fail_on_loss: bool
    block_bytes: int
    blocks_in_flight: int
    files_in_flight: int
    rate_limit_bytes_per_s: int


#: Options that transfer.Options has under the same name.
_COPIED = {"checksum", "delete", "make_path", "dry_run", "sparse", "fsync", "restart"}
_COPIED |= {"max_delete", "fail_on_loss", "block_bytes", "blocks_in_flight", "files_in_flight"}
_LIMITS = {
    "block_bytes": (4096, 1 << 30),
    "blocks_in_flight": (1, 64),
    "files_in_flight": (1, 30),
    "max_delete": (0, 1 << 63),
    "rate_limit_bytes_per_s": (1, 1 << 63),
}
_CHOICES = {"digest": ("xxh3", "blake3", "none"), "fsync": ("file", "end", "none")}


def options_of(recursive: bool, keywords: TransferOptions) -> Options:
    """Converts the keywords to the transfer's options. Raises TypeError or ValueError: a keyword
    or its value is wrong.
    """
    _check(recursive, keywords)
    digest, archive = keywords.get("digest"), keywords.get("archive", False)
    patterns = [(True, one) for one in keywords.get("include", ())]
    patterns += [(False, one) for one in keywords.get("exclude", ())]
    update, rate = keywords.get("update", False), keywords.get("rate_limit_bytes_per_s")
    copied: Json = {name: value for name, value in keywords.items() if name in _COPIED}
    return Options(
        replace=keywords.get("replace", False) or update or keywords.get("checksum", False),
        digest=digest != "none",
        blake3=digest == "blake3",
        limit=RateLimit(rate) if rate else None,
        preserve=archive,
        links=archive,
        hard_links=archive,
        xattrs=archive,
        times=recursive,
        update=update and not keywords.get("checksum", False),
        keep_newer=update,
        filters=Filters(rules(patterns)),
        **copied,
    )


def _check(recursive: bool, keywords: TransferOptions) -> None:
    values: Json = dict(keywords)
    for name, value in values.items():
        if name not in TransferOptions.__annotations__:
            raise TypeError(f"{name!r} is not an option of a transfer")
        if name in _CHOICES and value not in _CHOICES[name]:
            raise ValueError(f"{name} {value!r} must be one of {', '.join(_CHOICES[name])}")
        if name in _LIMITS:
            check_within(name, value)
        if name in ("include", "exclude") and isinstance(value, str):
            raise TypeError(f"{name} {value!r} must be a list of patterns")
    if values.get("digest") == "blake3" and values.get("block_bytes", 4096).bit_count() > 1:
        raise ValueError(f"block_bytes {values['block_bytes']} must be a power of two with blake3")
    if values.get("delete") and not recursive:
        raise ValueError("delete needs recursive=True")
    if "max_delete" in values and not values.get("delete"):
        raise ValueError("max_delete needs delete=True")


def check_within(name: str, value: int) -> None:
    """Raises ValueError unless an option's number is within its limits."""
    low, high = _LIMITS[name]
    if not low <= value <= high:
        raise ValueError(f"{name} {value} must be from {low} to {high}")


class Watched(Events):
    """Reports a transfer's progress to a program; the watcher's exception ends the transfer."""

    def __init__(self, watcher: Watcher | None) -> None:
        self._watcher = watcher
        self._now = Progress()

    def _report(self, **now: Any) -> None:
        self._now = self._now._replace(**now)
        if self._watcher is not None:
            try:
                self._watcher(self._now)
            except BaseException:
                self._watcher = None  # it is not called again
                raise

    def expect(self, files: int, nbytes: int) -> None:
        now = self._now
        self._report(
            files_expected=now.files_expected + files, bytes_expected=now.bytes_expected + nbytes
        )

    def moved(self, nbytes: int) -> None:
        self._report(bytes_done=self._now.bytes_done + nbytes)

    def present(self, nbytes: int) -> None:
        self.moved(nbytes)

    def finished(self, name: str) -> None:
        self._report(files_done=self._now.files_done + 1, name=name)

    def finished_all(self, count: int, names: Callable[[], Iterable[str]]) -> None:
        self._report(files_done=self._now.files_done + count)

    def note(self, text: str) -> None:
        _log.info("%s", text)

    def failed(self, name: str, error: CarefulError) -> None:
        """Ignores the failure; the transfer raises it at its end."""
