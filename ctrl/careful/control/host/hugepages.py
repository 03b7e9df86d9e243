"""Finds whether UMEM would lie in hugepages, by allocating them like xsk_umem_map()."""

from __future__ import annotations

import mmap
from contextlib import suppress

HUGEPAGE_BYTES = 2 << 20
#: The most memory that is tried.
_TRIED_BYTES = 64 << 20
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
#: From <asm-generic/mman-common.h>; Python's mmap lacks some of the names.
_MAP_HUGETLB = 0x40000
_MADV_HUGEPAGE, _MADV_POPULATE_WRITE, _MADV_COLLAPSE = 14, 23, 25


def count(nbytes: int) -> int:
    """Returns the number of hugepages for this many bytes."""
    return -(-nbytes // HUGEPAGE_BYTES)


def kind(nbytes: int) -> str:
    """Returns the kind of hugepages that are free for this many bytes, or ""."""
    whole = count(min(nbytes, _TRIED_BYTES)) * HUGEPAGE_BYTES
    with suppress(OSError):
        mmap.mmap(-1, whole, flags=_PRIVATE | _MAP_HUGETLB).close()
        return "reserved"
    # One page more than needed, so that enough whole pages fit at any address.
    with suppress(OSError), mmap.mmap(-1, whole + HUGEPAGE_BYTES, flags=_PRIVATE) as memory:
        for advice in (_MADV_HUGEPAGE, _MADV_POPULATE_WRITE, _MADV_COLLAPSE):
            memory.madvise(advice)
        return "transparent"
    return ""
