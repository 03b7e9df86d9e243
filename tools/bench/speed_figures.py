"""Names the figures of the speed scenario, and the bounds of its ratios."""

from __future__ import annotations

from typing import NamedTuple

#: Bytes of a round trip, as many there as back.
SIZES = (64, 1024, 3072, 8192, 65536)
#: The largest that careful takes in one frame: beyond it goes by stores.
REQUEST_MOST = 3072
#: Quantiles of a round trip.
QUANTILES = {"p50": "P50", "p99": "P99", "p999": "P99.9", "max": "max"}
#: Programs that make round trips, careful first. UCX says P50 alone, libfabric the mean.
WHO = {
    "careful": "careful",
    "python": "careful, a client in Python",
    "traditional": "the traditional protocol",
    "bare": "AF_XDP without a protocol",
    "whole": "AF_XDP, all sent back at once",
    "tcp_spin": "TCP, spinning (sockperf)",
    "tcp_block": "TCP, blocking (sockperf)",
    "udp_spin": "UDP, spinning (sockperf)",
    "udp_block": "UDP, blocking (sockperf)",
    "ucx": "UCX over TCP (ucx_perftest)",
    "libfabric": "libfabric over TCP (fi_pingpong)",
}
#: Programs that copy a file: figure -> name.
COPIES = {
    "get": "carefulctl get, file to tmpfs",
    "get_plain": "carefulctl get without a digest, file to tmpfs",
    "get_blake3": "carefulctl get with BLAKE3, file to tmpfs",
    "own_get": "careful, file to tmpfs, program owning its queue",
    "nbdcopy": "nbdcopy, file to tmpfs (nbdkit file)",
    "rsync": "rsync from its daemon, file to tmpfs",
    "scp": "scp without encryption, file to tmpfs",
}
#: Programs that send a stream, whose time on the cores is taken: figure -> name.
STREAMS = {
    "stream": "careful, 1 MiB stores, memory to memory",
    "iperf_gso": "TCP stream (iperf3)",
    "iperf": "TCP stream without GSO and GRO (iperf3)",
}


def size_text(nbytes: int) -> str:
    """As in `64 B`, `8 KiB`."""
    return f"{nbytes} B" if nbytes < 1024 else f"{nbytes >> 10} KiB"


def _trips() -> dict[str, tuple[str, str]]:
    found = {}
    for nbytes in SIZES:
        for who, text in WHO.items():
            for key, quantile in QUANTILES.items():
                what = f"{size_text(nbytes)} there and back, {text}, {quantile}"
                found[f"trip_{who}_{nbytes}_{key}_us"] = (what, "us")
    return found


def _costs() -> dict[str, tuple[str, str]]:
    return {
        f"cpu_{key}_{side}_s": (f"{text}: {side}'s core", "s/GiB")
        for key, text in {**COPIES, **STREAMS}.items()
        for side in ("client", "server")
    }


#: name -> (what it is, unit)
FIGURES = {
    "bare_echo_us": ("AF_XDP echo without a protocol, 64 B", "us"),
    "bare_echo_p99_us": ("AF_XDP echo without a protocol, 64 B, P99", "us"),
    "request_us": ("careful request and reply, 64 B, spinning", "us"),
    "request_p99_us": ("careful request and reply, 64 B, spinning, P99", "us"),
    "tcp_spin_us": ("TCP round trip, 64 B, spinning (sockperf)", "us"),
    "tcp_block_us": ("TCP round trip, 64 B, blocking (sockperf)", "us"),
    "fetch_us": ("careful block fetch, 8 KiB", "us"),
    "fetch_p99_us": ("careful block fetch, 8 KiB, P99", "us"),
    "nbd_us": ("NBD read, 8 KiB (nbdkit memory, libnbd)", "us"),
    "nbd_p99_us": ("NBD read, 8 KiB (nbdkit memory, libnbd), P99", "us"),
    "fio_us": ("NBD read, 8 KiB (nbdkit memory, fio)", "us"),
    "fio_p99_us": ("NBD read, 8 KiB (nbdkit memory, fio), P99", "us"),
    "bare_stream_gbit": ("AF_XDP stream without a protocol", "Gbit/s"),
    **{f"{key}_gbit": (text, "Gbit/s") for key, text in STREAMS.items()},
    "traditional_gbit": ("the traditional protocol, the same stores", "Gbit/s"),
    "ucx_gbit": ("UCX over TCP, 1 MiB (ucx_perftest)", "Gbit/s"),
    "small_mps": ("careful, 64 B messages in a stream", "1/s"),
    "packed_mps": ("careful, 64 B messages that share frames", "1/s"),
    "bare_small_mps": ("AF_XDP stream of as large frames", "1/s"),
    **{f"{key}_gbit": (text, "Gbit/s") for key, text in COPIES.items()},
    **_costs(),
    "tree_careful_s": ("carefulctl get -r, 10,000 files of 4 KiB", "s"),
    "tree_rsync_s": ("rsync from its daemon, 10,000 files of 4 KiB", "s"),
    "tree_scp_s": ("scp -r without encryption, 10,000 files of 4 KiB", "s"),
    **_trips(),
}


#: Short names of what is compared, for a narrow table.
SHORT = {
    "request_us": "request, 64 B",
    "request_p99_us": "the same, P99",
    "bare_echo_us": "AF_XDP",
    "bare_echo_p99_us": "AF_XDP, P99",
    "tcp_spin_us": "TCP",
    "fetch_us": "block, 8 KiB",
    "nbd_us": "NBD",
    "fio_us": "NBD (fio)",
    "small_mps": "64 B messages",
    "packed_mps": "the same, packed",
    "bare_small_mps": "AF_XDP",
    "stream_gbit": "stream",
    "bare_stream_gbit": "AF_XDP",
    "iperf_gbit": "TCP, no GSO",
    "iperf_gso_gbit": "TCP",
    "ucx_gbit": "UCX",
    "traditional_gbit": "traditional",
    "get_gbit": "get, 1 GiB",
    "get_plain_gbit": "no digest",
    "get_blake3_gbit": "get, BLAKE3",
    "own_get_gbit": "get, own queue",
    "nbdcopy_gbit": "nbdcopy",
    "rsync_gbit": "rsync",
    "scp_gbit": "scp",
    "tree_careful_s": "get -r, 10,000",
    "tree_rsync_s": "rsync",
    "tree_scp_s": "scp",
    **{f"trip_careful_{size}_p50_us": f"{size_text(size)} and back" for size in SIZES},
    **{f"trip_bare_{size}_p50_us": "AF_XDP" for size in SIZES},
    **{f"trip_whole_{size}_p50_us": "AF_XDP, whole" for size in SIZES},
    **{f"trip_tcp_spin_{size}_p50_us": "TCP" for size in SIZES},
    **{f"trip_ucx_{size}_p50_us": "UCX" for size in SIZES},
    **{f"trip_libfabric_{size}_p50_us": "libfabric" for size in SIZES},
}


class Bound(NamedTuple):
    """`figure` / `yardstick`, which shall be at most (or at least) `bound`; None: is told."""

    figure: str
    yardstick: str
    bound: float | None
    at_most: bool


def _trip(who: str, nbytes: int) -> str:
    return f"trip_{who}_{nbytes}_p50_us"


#: Figure -> those of the bare device whose mean is its part: what no protocol over it can pass.
#: A block is half of a round trip of one frame, and half of one of three.
DEVICE = {
    "request_us": ("bare_echo_us",),
    "fetch_us": (_trip("bare", 64), _trip("whole", 8192)),
    "stream_gbit": ("bare_stream_gbit",),
    "get_gbit": ("bare_stream_gbit",),
    **{_trip("careful", size): (_trip("bare", size),) for size in SIZES},
    _trip("careful", 8192): (_trip("whole", 8192),),
    _trip("careful", 65536): (_trip("whole", 65536),),
}

#: Yardsticks that are careful's own: beside them the device's part says nothing.
OWN = ("get_plain_gbit", "traditional_gbit")

#: Measured once a round, in the XDP mode that carefuld's own trial finds the better.
MODELESS = ("tree_careful_s",)

BOUNDS = [
    Bound("request_us", "bare_echo_us", 1.10, True),
    Bound("request_us", "tcp_spin_us", 0.45, True),
    Bound("request_p99_us", "bare_echo_p99_us", 1.2, True),
    Bound(_trip("careful", 1024), _trip("tcp_spin", 1024), 0.50, True),
    Bound(_trip("careful", 3072), _trip("tcp_spin", 3072), 0.55, True),
    Bound(_trip("careful", 8192), _trip("whole", 8192), 1.10, True),
    Bound(_trip("careful", 8192), _trip("bare", 8192), None, True),
    Bound(_trip("careful", 8192), _trip("tcp_spin", 8192), 0.9, True),
    Bound(_trip("careful", 65536), _trip("tcp_spin", 65536), None, True),
    Bound(_trip("careful", 64), _trip("ucx", 64), None, True),
    Bound(_trip("careful", 64), _trip("libfabric", 64), None, True),
    Bound("fetch_us", "nbd_us", 0.10, True),
    Bound("fetch_us", "fio_us", None, True),
    Bound("fetch_us", _trip("tcp_spin", 8192), 1.0, True),
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
