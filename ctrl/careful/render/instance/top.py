"""The output of `top`: a table of peers for each instance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from careful.control.instance.top import PeerRates, Rates
from careful.render.instance.status import lent
from careful.render.tables import alarm, table
from careful.units import shown_rate


# No cell is wider than its heading, so that the columns do not move.
def _row(one: PeerRates) -> tuple[object, ...]:
    state = one.state + (f": {one.error}" if one.error else "")
    took = one.latency_us
    return (
        one.peer,
        state if state in ("up", "ended") else alarm(state),
        f"{one.credits_free}/{one.credits_window}",
        *(f"{shown_rate(rate):>11}" for rate in (one.tx_bytes_per_s, one.rx_bytes_per_s)),
        round(one.messages_per_s),
        "-" if took is None else f"{took:.0f}",
        alarm(str(one.lost_frames)) if one.lost_frames else 0,
        one.waits_for or "-",
    )


#: Key -> the figure that peers are sorted by, largest first, and its name.
ORDERS = {
    "s": ("tx_bytes_per_s", "sent"),
    "r": ("rx_bytes_per_s", "received"),
    "m": ("messages_per_s", "messages"),
    "l": ("latency_us", "latency"),
}


def keys(order: str) -> str:
    """Returns a line about the keys; order: the present one of ORDERS, or ""."""
    by = ORDERS[order][1] if order else "what moves"
    listed = ", ".join(f"{key} {name}" for key, (_, name) in ORDERS.items() if key != order)
    return f"sorted by {by}; keys: {listed}, q ends"


def shown(found: Sequence[Rates], mute: Mapping[str, str] | None = None, order: str = "") -> str:
    """Returns every instance that is up.

    Args:
        found: rates of each instance.
        mute: why an instance did not answer, by name.
        order: one of ORDERS; "": peers in the order of `found`.
    """
    columns = ["peer", "state", "credits", f"{'sends':>11}", f"{'receives':>11}"]
    columns += ["messages/s", "latency (µs)", "lost", "waits for"]
    parts = []
    for one in found:
        copy = "zero-copy" if one.zerocopy else "copy"
        head = f"{one.instance} on {one.ifname}: XDP {one.xdp_mode}, {copy}, "
        head += f"window {one.window_buffers}"
        if repaired := sum(each.repaired_frames for each in one.peers):
            head += f", {repaired} lost frames repaired"
        head = "\n".join([head, *lent(one.lent)])
        peers = one.peers
        if order:
            peers = sorted(peers, key=lambda each: -(getattr(each, ORDERS[order][0]) or 0))
        rows = [_row(each) for each in peers]
        parts.append(f"{head}\n{table('', columns, rows)}" if rows else f"{head}\n  no peers")
    parts += [alarm(f"instance {name}: {why}") for name, why in (mute or {}).items()]
    return "\n\n".join(parts) or "careful is not up"
