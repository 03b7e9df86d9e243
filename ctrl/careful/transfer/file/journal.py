"""The journal of a partial file, by which the next transfer continues an interrupted one.

The journal lies behind the file's own bytes: the source's identity, and the blocks in place with
their digests. Both ends use this format; the end that runs the transfer writes it. A file under its
final name has no journal.
"""

from __future__ import annotations

import errno
import json
import os
import re
import struct
from dataclasses import asdict, dataclass

from careful.errors import CarefulError, Option, about
from careful.transfer.file.partial_file import digest_of
from careful.transfer.folder import Folder
from careful.transfer.options import Options
from careful.units import shown_bytes

#: Names of partial and temporary files, ours and a peer's.
NAME = re.compile(r"^\.(.*\.)?careful-([0-9a-f]{16})\.part\Z", re.DOTALL)


def is_partial(name: str) -> bool:
    """Reports whether a path has the name of a partial or temporary file."""
    return NAME.match(name.rpartition("/")[2]) is not None


_MAGIC = b"careful1"
#: Magic, bytes of the tail, bytes of the identity, bytes of a block.
_FOOTER = struct.Struct(">8sQII")
#: 1 if the block is in place, then its XXH3 (0: none was computed).
_ENTRY = struct.Struct(">QQ")
_IDENTITY_STEP = 512
#: Limits of identity and block, bytes: any program may write a file that looks like a journal.
_IDENTITY_MAX, _BLOCK_MIN = 64 << 10, 4096
FOOTER_BYTES = _FOOTER.size
#: The most blocks of a file with a journal: 256 MiB of journal, or 64 TiB in blocks of 4 MiB.
_BLOCKS_MAX = 1 << 24
#: The longest journal, bytes.
TAIL_MAX = _BLOCKS_MAX * _ENTRY.size + _IDENTITY_MAX + FOOTER_BYTES


@dataclass(frozen=True)
class Identity:
    """A source at the start of its transfer.

    Attributes:
        source: its name, for people.
        bytes: its size.
        mtime_ns: modified, ns since 1970.
        ctime_ns: changed in any way, ns since 1970.
        inode: its number.
    """

    source: str
    bytes: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    def changed(self, now: Identity) -> bool:
        """Reports whether size or time differ; digests find other changes."""
        return (self.bytes, self.mtime_ns) != (now.bytes, now.mtime_ns)


def _identity(text: bytes) -> Identity:
    """Parses an identity. Raises ValueError: the text is not one."""
    try:
        fields = json.loads(text)
    except RecursionError as error:
        raise ValueError from error
    names = {"source": str, "bytes": int, "mtime_ns": int, "ctime_ns": int, "inode": int}
    if not isinstance(fields, dict) or {key: type(fields[key]) for key in fields} != names:
        raise ValueError
    return Identity(**fields)


class Journal:
    """The blocks of a partial file that are in place.

    Args:
        identity: of the source.
        block_bytes: size of a block; the last may be shorter.
        entries: as read back; by default no block is in place.
    """

    def __init__(self, identity: Identity, block_bytes: int, entries: bytes = b"") -> None:
        self.identity = identity
        self.block_bytes = block_bytes
        self.count = -(-identity.bytes // block_bytes)
        self._entries = bytearray(entries or bytes(self.count * _ENTRY.size))
        assert len(self._entries) == self.count * _ENTRY.size

    @property
    def tail(self) -> bytes:
        """Returns the journal as bytes, to be stored behind the file's own bytes."""
        text = json.dumps(asdict(self.identity)).encode()
        text += b" " * (-len(text) % _IDENTITY_STEP)
        nbytes = len(self._entries) + len(text) + _FOOTER.size
        footer = _FOOTER.pack(_MAGIC, nbytes, len(text), self.block_bytes)
        return bytes(self._entries) + text + footer

    @property
    def tail_bytes(self) -> int:
        return len(self.tail)

    @staticmethod
    def bytes_of_tail(footer: bytes, size: int) -> int:
        """Returns the length of the tail that ends in `footer`, in a file of `size` bytes, or 0."""
        magic, nbytes, text_bytes, block_bytes = _FOOTER.unpack(footer)
        if magic != _MAGIC or not 0 < nbytes <= size:
            return 0
        if text_bytes > _IDENTITY_MAX or block_bytes < _BLOCK_MIN:
            return 0
        count = -(-(size - nbytes) // block_bytes)
        return int(nbytes) if nbytes == count * _ENTRY.size + text_bytes + _FOOTER.size else 0

    @classmethod
    def parse(cls, tail: bytes, size: int) -> Journal | None:
        """Parses the tail of a file of `size` bytes; returns None if the tail is damaged."""
        footer = tail[-_FOOTER.size :]
        if len(footer) != _FOOTER.size or cls.bytes_of_tail(footer, size) != len(tail):
            return None
        _, _, text_bytes, block_bytes = _FOOTER.unpack(footer)
        text_at = len(tail) - _FOOTER.size - text_bytes
        try:
            identity = _identity(tail[text_at : -_FOOTER.size])
        except ValueError:
            return None
        if identity.bytes != size - len(tail):
            return None
        return cls(identity, block_bytes, tail[:text_at])

    def range_of(self, index: int) -> tuple[int, int]:
        offset = index * self.block_bytes
        return offset, min(self.block_bytes, self.identity.bytes - offset)

    def digest(self, index: int) -> int | None:
        """Returns the XXH3 of a block, 0 if none was computed, or None if the block is missing."""
        state, digest = _ENTRY.unpack_from(self._entries, index * _ENTRY.size)
        return digest if state == 1 else None

    def mark(self, index: int, digest: int) -> tuple[int, bytes]:
        """Marks a block as in place; returns the offset in the tail and the bytes to write."""
        return self._set(index, 1, digest)

    def unmark(self, index: int) -> tuple[int, bytes]:
        """Marks a block as missing; returns the change like mark()."""
        return self._set(index, 0, 0)

    def _set(self, index: int, state: int, digest: int) -> tuple[int, bytes]:
        entry, at = _ENTRY.pack(state, digest), index * _ENTRY.size
        self._entries[at : at + _ENTRY.size] = entry
        return at, entry

    @property
    def in_place(self) -> list[int]:
        return [index for index in range(self.count) if self.digest(index) is not None]

    @property
    def bytes_in_place(self) -> int:
        return sum(self.range_of(index)[1] for index in self.in_place)


def check_fits(folder: Folder, nbytes: int, block_bytes: int, sparse: bool, name: str) -> None:
    """Raises CarefulError if a file of an announced size cannot exist, before any allocation.

    A server can announce any size. Holes need no room.
    """
    with about(name):
        file_system = os.statvfs(f"/proc/self/fd/{folder.fd}")
    if not sparse and file_system.f_blocks and nbytes > file_system.f_blocks * file_system.f_frsize:
        text = f"{os.strerror(errno.ENOSPC)}: the file has {shown_bytes(nbytes)}, the file system "
        text += f"{shown_bytes(file_system.f_blocks * file_system.f_frsize)}"
        raise CarefulError(errno.ENOSPC, text, name)
    if nbytes > _BLOCKS_MAX * block_bytes:
        text = f"has more than {_BLOCKS_MAX} blocks; use a larger --block-bytes"
        raise CarefulError(errno.EFBIG, text, name)


def tag_of(*words: str) -> int:
    """Returns the tag in a partial file's name: a repeated command finds its file by it."""
    joined = b"\0".join(os.fsencode(word) for word in words)
    return digest_of(joined) or 1


def read_journal(fd: int) -> Journal | None:
    """Returns the journal at the end of an open file, or None."""
    size = os.fstat(fd).st_size
    if size < FOOTER_BYTES:
        return None
    nbytes = Journal.bytes_of_tail(os.pread(fd, FOOTER_BYTES, size - FOOTER_BYTES), size)
    return Journal.parse(os.pread(fd, nbytes, size - nbytes), size) if nbytes else None


def continued(journal: Journal | None, now: Identity, options: Options) -> Journal | None:
    """Returns the journal of a partial file to continue; None to start over. Raises CarefulError:
    the source changed.
    """
    if journal is None or options.restart:
        return None
    if options.blake3 and journal.block_bytes.bit_count() != 1:  # it needs a power of two
        return None
    before = journal.identity
    if not before.changed(now):
        return journal
    if options.restart_changed:
        return None
    sizes = f" ({before.bytes} bytes then, {now.bytes} now)" if before.bytes != now.bytes else ""
    text = (f"changed since its transfer began{sizes}; ", Option.RESTART, " starts over")
    raise CarefulError(errno.ESTALE, text, now.source)
