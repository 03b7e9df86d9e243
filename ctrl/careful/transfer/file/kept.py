"""What of a file is kept when its transfer ends early, and what people are told of it.

Calls journal.py.
"""

from __future__ import annotations

import errno

from careful.errors import CarefulError, Option, spelled
from careful.transfer.file.journal import Journal
from careful.transfer.options import Progress
from careful.units import shown_bytes

#: What to do after an interruption.
RESUME = (Option.AGAIN, " to resume")


def is_worth_keeping(journal: Journal, error: BaseException) -> bool:
    """Reports whether what came across serves a later transfer."""
    changed = isinstance(error, CarefulError) and error.errno in (errno.ESTALE, errno.ENODATA)
    return bool(journal.in_place) and not changed


def tell_kept(kept: tuple[int, int], name: str, error: BaseException, progress: Progress) -> None:
    """Say that a partial file stays: in the error's line, if there will be one.

    Args:
        kept: how much is in place, 0 if that is not known, and of how much.
        name: of the file.
        error: what ended its transfer.
        progress: told if the error is nobody's line.
    """
    done, all_bytes = kept
    what = f"{done} of {all_bytes} bytes are kept" if done else "what arrived is kept"
    if isinstance(error, CarefulError):
        error.add(f"{what}; ", *RESUME)
    else:
        progress.note(f"{name}: {what}; {spelled(RESUME)}")


def tell_lost(name: str, block_bytes: int, error: BaseException, progress: Progress) -> None:
    """Say that an interrupted transfer leaves nothing; of one that failed, the error says enough.

    Args:
        name: of the file.
        block_bytes: size of a block.
        error: what ended its transfer.
        progress: told.
    """
    if not isinstance(error, CarefulError):
        block = shown_bytes(block_bytes)
        text = f"nothing is kept (no block of {block} was complete); the next run starts over"
        progress.note(f"{name}: {text}")
