"""The status of a healthy instance and peer."""

from dataclasses import replace

from careful._abi import ffi
from careful.control.instance.records import in_effect, peer
from careful.control.instance.status import Status
from careful.control.options.config import Config

_INFO = ffi.new("struct careful_info *")

PEER = replace(
    peer(ffi.new("struct careful_peer_info *", {"address": {"ss_family": 2}}), _INFO, Config()),
    node="h2",
    name="h2",
    address="192.168.100.102",
    state="up",
    credits_free=64,
    credits_window=64,
    window_buffers=64,
    window_now_buffers=64,
    burst="whole",
    burst_frames=512,
    tx_bytes=1000 << 20,
    rx_bytes=1000 << 20,
    epochs=1,
    wire_minor=255,  # of a later release
    seal="off",
)
EFFECT = replace(
    in_effect(_INFO),
    ifname="eth1",
    driver="veth",
    xdp_mode="native",
    xdp_by="remembered",
    multibuffer=True,
    mtu_bytes=3826,
    port=51966,
    wait="adaptive",
    spin_us=50,
    receive_bound="umem",
    window_buffers=64,
    receive_buffers=512,
    peers_max=8,
    update_threshold_buffers=32,
    umem_bytes=4 << 20,
    hugepages=True,
)
IN_EFFECT = Status(
    **vars(EFFECT),
    instance="eth1",
    pid=16183,
    log="/run/careful/eth1/log",
    kernel="6.18",
    exports=[],
    tuner_pid=None,
    counters={"rx_frames": 852, "syncs": 0, "device_program_detached": 0, "digest_bad": 0},
    xdp_counters={"admitted": 852},
    xdp_counters_error=None,
    peers=[],
    programs=[],
)
