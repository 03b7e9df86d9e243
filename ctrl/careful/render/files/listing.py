"""The output of `ls`, sorted by name; a directory may be larger than memory."""

from __future__ import annotations

import heapq
import os
import pickle
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import IO, TYPE_CHECKING

from careful.errors import from_os, meaning, shown
from careful.transfer.protocol.entries import FAR_NS

if TYPE_CHECKING:
    from careful.transfer.protocol.entries import Attr, Entry

#: Entries sorted in memory at a time.
_PART = 8192
_CHUNK = 128
_by_name = attrgetter("name")


def in_order(pages: Iterable[Sequence[Entry]]) -> Iterator[Entry]:
    """Sorts entries by name with at most one part in memory, like sort(1).

    Raises CarefulError if there is no room for a temporary file.
    """
    part: list[Entry] = []
    runs: list[Iterator[Entry]] = []
    file: IO[bytes] | None = None
    try:
        for page in pages:
            part += page
            if len(part) >= _PART:
                file = file or tempfile.TemporaryFile(prefix="careful-ls-")  # noqa: SIM115
                runs.append(_written(file, sorted(part, key=_by_name)))
                part = []
        part.sort(key=_by_name)
        yield from heapq.merge(*runs, part, key=_by_name)
    except OSError as error:
        raise from_os(error, f"sorting in {tempfile.gettempdir()}") from None
    finally:
        if file is not None:
            file.close()


def _written(file: IO[bytes], part: list[Entry]) -> Iterator[Entry]:
    places = []
    for at in range(0, len(part), _CHUNK):
        data = pickle.dumps(part[at : at + _CHUNK])
        places.append((file.tell(), len(data)))
        file.write(data)
    file.flush()
    return _read(file.fileno(), places)


def _read(fd: int, places: list[tuple[int, int]]) -> Iterator[Entry]:
    for at, nbytes in places:
        yield from pickle.loads(os.pread(fd, nbytes, at))


def lines(pages: Iterable[Sequence[Entry]], long: bool) -> Iterator[str]:
    """Yields the entries of a directory by name; with `long`, like `ls -l`."""
    return map(_long if long else _short, in_order(pages))


def _why(entry: Entry) -> str:
    return f" ({meaning(entry.error)})" if entry.error else ""


def _short(entry: Entry) -> str:
    return shown(entry.name) + ("/" if entry.attr.is_dir else "") + _why(entry)


def _when(time_ns: int) -> str:
    if time_ns in FAR_NS:
        return f"{'after 2262' if time_ns > 0 else 'before 1678':16}"
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(time_ns / 1e9))


def _long(entry: Entry) -> str:
    if entry.error and not entry.attr.mode:
        return f"?????????? {'?':>12} {'?':16} {shown(entry.name)}{_why(entry)}"
    attr: Attr = entry.attr
    target = f" -> {shown(entry.target)}" if entry.target else ""
    mode = stat.filemode(attr.mode)
    return (
        f"{mode} {attr.bytes:>12} {_when(attr.mtime_ns)} {shown(entry.name)}{target}{_why(entry)}"
    )


def entry(one: Entry) -> dict[str, object]:
    """Returns an entry for JSON; a name that is not UTF-8 is added in hex."""
    found: dict[str, object] = {
        "name": shown(one.name),
        "mode": stat.filemode(one.attr.mode),
        "bytes": one.attr.bytes,
        "mtime_ns": one.attr.mtime_ns,
        "target": shown(one.target) or None,
        "error": meaning(one.error) if one.error else None,
    }
    if found["name"] != one.name:
        found["name_hex"] = os.fsencode(one.name).hex()
    return found
