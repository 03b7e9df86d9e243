"""Whether UMEM would lie in hugepages, found by asking for them as xsk_umem_map() does.

Owns the try; the memory is given back at once. Calls nobody.
"""

from __future__ import annotations

import mmap

HUGEPAGE_BYTES = 2 << 20
#: No more than this is tried.
_TRIED_BYTES = 64 << 20
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
#: Of <asm-generic/mman-common.h>; Python's mmap does not name them all.
_MAP_HUGETLB = 0x40000
_MADV_HUGEPAGE, _MADV_POPULATE_WRITE, _MADV_COLLAPSE = 14, 23, 25


def count(nbytes: int) -> int:
    """How many hugepages so many bytes fill."""
    return -(-nbytes // HUGEPAGE_BYTES)


def _reserved(nbytes: int) -> bool:
    try:
        mmap.mmap(-1, nbytes, flags=_PRIVATE | _MAP_HUGETLB).close()
    except OSError:
        return False
    return True


def _transparent(nbytes: int) -> bool:
    # One more than is needed: as many lie in it whatever address it begins at.
    try:
        with mmap.mmap(-1, nbytes + HUGEPAGE_BYTES, flags=_PRIVATE) as memory:
            for advice in (_MADV_HUGEPAGE, _MADV_POPULATE_WRITE, _MADV_COLLAPSE):
                memory.madvise(advice)
    except OSError:
        return False
    return True


def kind(nbytes: int) -> str:
    """What this much memory can have now: "reserved" hugepages, "transparent" ones, or ""."""
    whole = count(min(nbytes, _TRIED_BYTES)) * HUGEPAGE_BYTES
    if _reserved(whole):
        return "reserved"
    return "transparent" if _transparent(whole) else ""
