"""Names the figures of the speed scenario, and the bounds of their ratios."""

from __future__ import annotations

from typing import NamedTuple

#: Bytes of a round trip, in each direction.
SIZES = (64, 1024, 3072, 8192, 65536)
#: The largest request in one frame; larger ones are stores.
REQUEST_MOST = 3072
#: Programs with round trips: name in a figure -> (full name, short name).
TRIPS = {
    "careful": ("careful", ""),
    "traditional": ("the traditional protocol", "traditional"),
    "bare": ("AF_XDP without a protocol", "AF_XDP"),
    "whole": ("AF_XDP, all sent back at once", "AF_XDP, whole"),
    "tcp_spin": ("TCP, spinning (sockperf)", "TCP"),
    "ucx": ("UCX over TCP (ucx_perftest)", "UCX"),
    "libfabric": ("libfabric over TCP (fi_pingpong)", "libfabric"),
}


def size_text(nbytes: int) -> str:
    return f"{nbytes} B" if nbytes < 1024 else f"{nbytes >> 10} KiB"


def trip(who: str, nbytes: int) -> str:
    """Returns the figure of a program's round trips."""
    return f"trip_{who}_{nbytes}_p50_us"


#: Figure -> (what it is, short name for a narrow table, unit).
FIGURES = {
    "request_us": ("careful request and reply, 64 B, spinning", "request, 64 B", "µs"),
    "request_p99_us": ("careful request and reply, 64 B, spinning, P99", "the same, P99", "µs"),
    "bare_echo_us": ("AF_XDP echo without a protocol, 64 B", "AF_XDP", "µs"),
    "bare_echo_p99_us": ("AF_XDP echo without a protocol, 64 B, P99", "AF_XDP, P99", "µs"),
    "tcp_spin_us": ("TCP round trip, 64 B, spinning (sockperf)", "TCP", "µs"),
    **{
        trip(who, size): (
            f"{size_text(size)} there and back, {text}",
            short or f"{size_text(size)} and back",
            "µs",
        )
        for size in SIZES
        for who, (text, short) in TRIPS.items()
    },
    "fetch_us": ("careful block fetch, 8 KiB", "block, 8 KiB", "µs"),
    "fio_us": ("NBD read, 8 KiB (nbdkit memory, fio)", "NBD", "µs"),
    "small_mps": ("careful, 64 B messages in a stream", "64 B messages", "1/s"),
    "packed_mps": ("careful, 64 B messages that share frames", "the same, packed", "1/s"),
    "bare_small_mps": ("AF_XDP stream of as large frames", "AF_XDP", "1/s"),
    "stream_gbit": ("careful, 1 MiB stores, memory to memory", "stream", "Gbit/s"),
    "bare_stream_gbit": ("AF_XDP stream without a protocol", "AF_XDP", "Gbit/s"),
    "iperf_gso_gbit": ("TCP stream (iperf3)", "TCP", "Gbit/s"),
    "iperf_gbit": ("TCP stream without GSO and GRO (iperf3)", "TCP, no GSO", "Gbit/s"),
    "traditional_gbit": ("the traditional protocol, the same stores", "traditional", "Gbit/s"),
    "ucx_gbit": ("UCX over TCP, 1 MiB (ucx_perftest)", "UCX", "Gbit/s"),
    "get_gbit": ("carefulctl get", "get, 1 GiB", "Gbit/s"),
    "get_plain_gbit": ("carefulctl get without a digest", "no digest", "Gbit/s"),
    "get_blake3_gbit": ("carefulctl get with BLAKE3", "get, BLAKE3", "Gbit/s"),
    "own_get_gbit": ("careful, program owning its queue", "get, own queue", "Gbit/s"),
    "nbdcopy_gbit": ("nbdcopy (nbdkit file)", "nbdcopy", "Gbit/s"),
    "rsync_gbit": ("rsync from its daemon", "rsync", "Gbit/s"),
    "scp_gbit": ("scp without encryption", "scp", "Gbit/s"),
    "tree_careful_s": ("carefulctl get -r, 10,000 files of 4 KiB", "get -r, 10,000", "s"),
    "tree_rsync_s": ("rsync from its daemon, 10,000 files of 4 KiB", "rsync", "s"),
    "tree_scp_s": ("scp -r without encryption, 10,000 files of 4 KiB", "scp", "s"),
}


class Bound(NamedTuple):
    """`figure` / `yardstick` must be at most, or at least, `bound`; None: only reported."""

    figure: str
    yardstick: str
    bound: float | None
    at_most: bool

    def met(self, ratio: float) -> bool | None:
        """Reports whether a ratio meets the bound; None: there is no bound."""
        if self.bound is None:
            return None
        return ratio <= self.bound if self.at_most else ratio >= self.bound


#: Figure -> figures of the bare device whose mean bounds every protocol over it. A block needs half
#: of a round trip of one frame plus half of a round trip of three.
DEVICE = {
    "request_us": ("bare_echo_us",),
    "fetch_us": (trip("bare", 64), trip("whole", 8192)),
    "stream_gbit": ("bare_stream_gbit",),
    "get_gbit": ("bare_stream_gbit",),
    **{
        trip("careful", size): (trip("bare" if size <= REQUEST_MOST else "whole", size),)
        for size in SIZES
    },
}
#: Yardsticks of careful itself, for which the device's part is meaningless.
OWN = ("get_plain_gbit", "traditional_gbit")
#: Measured once per round, in the XDP mode that carefuld's trial prefers.
MODELESS = ("tree_careful_s",)

BOUNDS = [
    Bound("request_us", "bare_echo_us", 1.10, True),
    Bound("request_us", "tcp_spin_us", 0.45, True),
    Bound("request_p99_us", "bare_echo_p99_us", 1.2, True),
    Bound(trip("careful", 1024), trip("tcp_spin", 1024), 0.50, True),
    Bound(trip("careful", 3072), trip("tcp_spin", 3072), 0.55, True),
    Bound(trip("careful", 8192), trip("whole", 8192), 1.10, True),
    Bound(trip("careful", 8192), trip("bare", 8192), None, True),
    Bound(trip("careful", 8192), trip("tcp_spin", 8192), 0.9, True),
    Bound(trip("careful", 65536), trip("tcp_spin", 65536), None, True),
    Bound(trip("careful", 64), trip("ucx", 64), None, True),
    Bound(trip("careful", 64), trip("libfabric", 64), None, True),
    Bound("fetch_us", "fio_us", 0.10, True),
    Bound("fetch_us", trip("tcp_spin", 8192), 1.0, True),
    Bound("small_mps", "bare_small_mps", 0.95, False),
    Bound("packed_mps", "bare_small_mps", 5.0, False),
    Bound("stream_gbit", "bare_stream_gbit", 0.95, False),
    Bound("stream_gbit", "iperf_gbit", 2.0, False),
    Bound("stream_gbit", "iperf_gso_gbit", None, False),
    Bound("stream_gbit", "ucx_gbit", None, False),
    Bound("stream_gbit", "traditional_gbit", None, False),
    Bound("get_gbit", "bare_stream_gbit", 0.75, False),
    Bound("own_get_gbit", "bare_stream_gbit", None, False),
    Bound("get_gbit", "get_plain_gbit", 0.97, False),
    Bound("get_blake3_gbit", "get_plain_gbit", None, False),
    Bound("get_gbit", "nbdcopy_gbit", 1.5, False),
    Bound("get_gbit", "rsync_gbit", 3.0, False),
    Bound("get_gbit", "scp_gbit", 3.0, False),
    Bound("tree_careful_s", "tree_rsync_s", 0.5, True),
    Bound("tree_careful_s", "tree_scp_s", 1 / 15, True),
]
