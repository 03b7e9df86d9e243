"""Rounds plans to whole bytes: sizes still sum to the message and stay inside the limits."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from careful.model.stages import Array

IntArray = npt.NDArray[np.int64]


def whole_sizes(sizes_bytes: npt.ArrayLike) -> Array:
    """Rounds fragment sizes and keeps their sum, shape (..., k), float64 holding integers.

    Rounds the running sums, so no size changes by a byte or more. For a whole m, sizes that were at
    least m (or at most m) remain so. Zeros (padding) stay.
    """
    ends = np.floor(np.cumsum(np.asarray(sizes_bytes, dtype=np.float64), axis=-1) + 0.5 + 1e-9)
    rounded: Array = np.diff(ends, axis=-1, prepend=0.0)
    return rounded


def equal_sizes(message_bytes: int, k: int) -> IntArray:
    """Splits a message into k sizes, shape (k,), that differ by at most a byte; larger first."""
    sizes = np.full(k, message_bytes // k, dtype=np.int64)
    sizes[: message_bytes % k] += 1
    return sizes


def static_sizes(message_bytes: int, size_bytes: int) -> IntArray:
    """Returns fragments of `size_bytes` and a shorter last one, like FM and GAM (P1 5.4)."""
    k = -(-message_bytes // size_bytes)
    sizes = np.full(k, size_bytes, dtype=np.int64)
    sizes[-1] = message_bytes - (k - 1) * size_bytes
    return sizes
