"""Pipelines for the tests: random ones for hypothesis, and small ones by hand."""

from __future__ import annotations

from careful.model import Pipeline, Stage
from hypothesis import strategies as st

#: Quarters keep sums exact, so that failures shrink to figures one can check by hand.
costs = st.integers(0, 400).map(lambda value: value / 4)


def make(*pairs: tuple[float, float], **extra: str) -> Pipeline:
    """Stages s0, s1, … from (g in µs, G in µs/KiB)."""
    return Pipeline(tuple(Stage(f"s{j}", g, G, **extra) for j, (g, G) in enumerate(pairs)))


@st.composite
def pipelines(draw: st.DrawFn, least: int = 1, most: int = 5, delays: bool = False) -> Pipeline:
    """Any pipeline: zero overheads and costless bytes included."""
    n = draw(st.integers(least, most))
    return Pipeline(
        tuple(
            Stage(f"s{j}", draw(costs), draw(costs), delay_us=draw(costs) if delays else 0.0)
            for j in range(n)
        )
    )


#: Pipelines whose stages all cost something, as the theorems on ramps assume.
busy = st.lists(
    st.tuples(st.integers(1, 200).map(lambda v: v / 4), st.integers(4, 400).map(lambda v: v / 4)),
    min_size=2,
    max_size=5,
).map(lambda pairs: make(*pairs))

plans = st.lists(st.integers(1, 5000), min_size=1, max_size=16)
