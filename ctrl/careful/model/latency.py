"""Exact latency of any fragmentation through any pipeline (P1 equations 1 to 3, 5, 10).

Vectorised over plans: each stage is one cumulative sum and one running maximum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from careful.errors import InputError
from careful.model.stages import Array, Pipeline


def exit_times_us(pipeline: Pipeline, sizes_bytes: npt.ArrayLike) -> Array:
    """Returns when each fragment leaves each stage; the clock starts with the first fragment.

    sizes_bytes: fragment sizes, shape (..., k), any real dtype, >= 0. A zero is padding and costs
    nothing, so plans of unequal length fit in one array.
    Returns µs, shape (..., k, n), float64, delays included.
    Raises ValueError for negative sizes, or for shared resources that no closed form covers.
    P1 equations 1 to 3 with equality: tau_ij = max(tau_i,j-1, tau_i-1,j) + t_ij, unrolled over i
    into C_i + max_{h<=i}(tau_h,j-1 - C_h-1), where C is the running sum of t_.j.
    """
    pipeline = pipeline.sequential()
    return np.stack(list(_exits(pipeline, _checked(sizes_bytes))), axis=-1)


def _checked(sizes_bytes: npt.ArrayLike) -> Array:
    sizes = np.asarray(sizes_bytes, dtype=np.float64)
    if sizes.ndim == 0 or sizes.shape[-1] == 0:
        raise InputError("a plan needs at least one fragment")
    if not (sizes.min() >= 0 and sizes.max() < np.inf):
        raise InputError("fragment sizes must be finite and not negative")
    return sizes


def _exits(pipeline: Pipeline, sizes: Array) -> Iterator[Array]:
    """Yields the exit times of one stage after another, shape of `sizes`, µs."""
    used = None if sizes.min() > 0 else sizes > 0
    tau = np.zeros_like(sizes)
    for j, stage in enumerate(pipeline.stages):
        tau = _through(pipeline.g_us[j], pipeline.G_us_per_byte[j], sizes, tau, used)
        tau += stage.delay_us
        yield tau


def latency_us(pipeline: Pipeline, sizes_bytes: npt.ArrayLike) -> Array:
    """Returns the latency T of each plan, µs, shape (...): `exit_times_us`'s last exit time.

    Arguments, errors and source are those of `exit_times_us`.
    """
    tau = np.zeros(1)
    for exits in _exits(pipeline.sequential(), _checked(sizes_bytes)):
        tau = exits
    last: Array = tau[..., -1]
    return last


def latency_of_times_us(times_us: Array) -> float:
    """Returns the latency, µs, if fragment i occupies stage j for times_us[i, j], shape (k, n).

    The same recurrence for stages whose time is not linear in the size: compound stages that become
    free only when their last internal stage does (P1 section 4.3.1).
    """
    tau = np.zeros(len(times_us))
    for column in times_us.T:
        done_us = np.cumsum(column)
        tau = done_us + np.maximum.accumulate(tau - (done_us - column))
    return float(tau[-1])


def _through(
    g_us: float,
    G_us_per_byte: float,
    sizes: Array,
    ready_us: Array,
    used: npt.NDArray[np.bool_] | None = None,
) -> Array:
    """Returns when fragments that are ready at `ready_us` leave one stage, in order.

    used: mask of the sizes that are fragments, not padding; None: all are fragments.
    """
    time_us = sizes * G_us_per_byte
    time_us += g_us
    if used is not None:
        time_us *= used
    done_us = time_us.cumsum(axis=-1)
    exits: Array = np.maximum.accumulate(ready_us - (done_us - time_us), axis=-1)
    exits += done_us
    return exits


def staged_exit_times_us(pipeline: Pipeline, sizes_by_stage: Sequence[Array]) -> list[Array]:
    """Returns the exit times if each stage has its own fragmentation (P1 section 4.3).

    sizes_by_stage: one array per stage, shape (k_j,), bytes, each with the same sum. A stage starts
    a fragment when the previous stage has delivered the fragment's last byte, so stages reassemble
    larger fragments and refragment into smaller ones.
    Returns one array per stage, µs, shape (k_j,). Raises ValueError if the sums differ.
    """
    exits: list[Array] = []
    arrived = np.zeros(0)
    for j, (stage, sizes) in enumerate(zip(pipeline.stages, sizes_by_stage, strict=True)):
        ends = np.cumsum(sizes)
        if j == 0:
            ready_us = np.zeros_like(sizes)
        else:
            if not np.isclose(ends[-1], arrived[-1], rtol=1e-9):
                raise InputError(
                    f"stage '{stage.name}': fragments sum to {ends[-1]:g} bytes, but "
                    f"{arrived[-1]:g} bytes arrived"
                )
            # Sums of real numbers: a boundary that both stages share may differ in the last digits.
            found = np.searchsorted(arrived, ends * (1 - 1e-12) - 1e-9)
            ready_us = exits[-1][np.minimum(found, len(arrived) - 1)]
        exits.append(
            _through(stage.g_us, pipeline.G_us_per_byte[j], sizes, ready_us) + stage.delay_us
        )
        arrived = ends
    return exits


def fixed_latency_us(pipeline: Pipeline, message_bytes: npt.ArrayLike, k: npt.ArrayLike) -> Array:
    """Returns the latency with k equal fragments of B/k bytes, µs (P1 equation 10).

    message_bytes, k: broadcast against each other, real (k need not be whole). The slowest stage at
    B/k is the bottleneck (P1 section 3.2), so the result is the upper envelope of the signature
    curves (`signature_us`).
    """
    pipeline = pipeline.sequential()
    count = np.asarray(k, dtype=np.float64)
    size = np.asarray(message_bytes, dtype=np.float64) / count
    time_us = pipeline.g_us + size[..., None] * pipeline.G_us_per_byte
    total: Array = time_us.sum(axis=-1) + (count - 1) * time_us.max(axis=-1) + pipeline.delay_us
    return total


def signature_us(pipeline: Pipeline, stage: int, message_bytes: float, k: npt.ArrayLike) -> Array:
    """Returns a stage's signature curve: the latency if it were the bottleneck, µs (P1 eq. 13)."""
    pipeline = pipeline.sequential()
    count = np.asarray(k, dtype=np.float64)
    g_b, G_b = pipeline.g_us[stage], pipeline.G_us_per_byte[stage]
    others_G = pipeline.G_us_per_byte.sum() - G_b
    others_g = pipeline.g_us.sum() - g_b
    curve: Array = (
        count * g_b
        + message_bytes / count * others_G
        + (others_g + message_bytes * G_b)
        + pipeline.delay_us
    )
    return curve


def lower_bound_us(pipeline: Pipeline, message_bytes: float) -> float:
    """Returns a weak lower bound of any plan, reassembly included, µs (P1 equation 5).

    B max(G) + sum(g), plus the delays. The paper uses the bottleneck's G. The bound holds for every
    stage, so the largest G gives the strongest form.
    """
    pipeline = pipeline.sequential()
    return float(
        message_bytes * pipeline.G_us_per_byte.max() + pipeline.g_us.sum() + pipeline.delay_us
    )


def fragments_bound(pipeline: Pipeline, message_bytes: float, latency_us: float) -> float:
    """Returns the fragment count beyond which no plan without reassembly beats `latency_us`.

    Each stage b is busy for k g_b + B G_b. It waits for the other stages' overheads before its
    first and after its last fragment, so T >= k g_b + B G_b + sum of the other g (P1 equations 4
    and 5). Infinite if no stage has an overhead.
    """
    pipeline = pipeline.sequential()
    spare_us = latency_us - pipeline.delay_us - message_bytes * pipeline.G_us_per_byte
    spare_us = spare_us - (pipeline.g_us.sum() - pipeline.g_us)
    with np.errstate(divide="ignore", invalid="ignore"):
        bounds = np.where(pipeline.g_us > 0, spare_us / pipeline.g_us, np.inf)
    return float(max(1.0, bounds.min()))
