"""What `ls` prints, of directories that may be larger than memory.

Owns the order: entries come as the file system has them, and are shown by name.
"""

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

#: Entries that are sorted in memory, and how many of each such part are there when all are.
_PART = 8192
_CHUNK = 128
_by_name = attrgetter("name")


def in_order(pages: Iterable[Sequence[Entry]]) -> Iterator[Entry]:
    """Entries by name; of more than a part, in memory is never more than one, as of sort(1).

    Raises:
        CarefulError: there is no room for a temporary file.
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
    """Entries of a directory by name; with `long`, as `ls -l` shows them."""
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
    """An entry of a listing, for JSON; a name that is no UTF-8 comes in hex, too."""
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
