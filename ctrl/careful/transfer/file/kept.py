"""Decides whether an interrupted transfer keeps its partial file, and reports it."""

from __future__ import annotations

import errno

from careful.errors import CarefulError, Option, spelled
from careful.transfer.file.journal import Journal
from careful.transfer.options import Progress
from careful.units import shown_bytes

#: Advice after an interruption.
RESUME = (Option.AGAIN, " to resume")


def is_worth_keeping(journal: Journal, error: BaseException) -> bool:
    """Reports whether the blocks in place help a later transfer."""
    changed = isinstance(error, CarefulError) and error.errno in (errno.ESTALE, errno.ENODATA)
    return bool(journal.in_place) and not changed


def tell_kept(kept: tuple[int, int], name: str, error: BaseException, progress: Progress) -> None:
    """Reports a kept partial file, in the error's line if there is one.

    `kept` is the bytes in place (0: unknown) and the file's size. `progress` receives the text if
    the error has no line.
    """
    done, all_bytes = kept
    what = f"{done} of {all_bytes} bytes are kept" if done else "what arrived is kept"
    if isinstance(error, CarefulError):
        error.add(f"{what}; ", *RESUME)
    else:
        progress.note(f"{name}: {what}; {spelled(RESUME)}")


def tell_lost(name: str, block_bytes: int, error: BaseException, progress: Progress) -> None:
    """Reports that an interrupted transfer keeps nothing; a CarefulError itself says enough."""
    if not isinstance(error, CarefulError):
        block = shown_bytes(block_bytes)
        text = f"nothing is kept (no block of {block} was complete); the next run starts over"
        progress.note(f"{name}: {text}")
