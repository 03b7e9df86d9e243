"""The maps of an instance, pinned under /sys/fs/bpf/careful/INSTANCE, checked against abi.h."""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path

from careful._abi import CData, enum_names, ffi, lib, sizeof
from careful.closing import Closing
from careful.control.instance import instances
from careful.errors import CarefulError

PINS = Path("/sys/fs/bpf/careful")


def pins(instance: str) -> Path:
    """Returns the folder of an instance's pinned maps: bpffs allows no dot (see xsk_pins.c)."""
    return PINS / instance.replace("%", "%25").replace(".", "%2e")


def _failed(what: str) -> CarefulError:
    code = ffi.errno
    text = "not permitted; run as root" if code in (errno.EPERM, errno.EACCES) else ""
    if code == errno.ENOENT:
        text = "no such map: is careful up?"
    return CarefulError(code, text, what)


def _object_info(fd: int, size: int, what: str) -> bytes:
    info = ffi.new("char[]", size)
    if lib.bpf_obj_get_info_by_fd(fd, info, ffi.new("uint32_t *", size)) < 0:
        raise _failed(what)
    return bytes(ffi.buffer(info))


def possible_cpus() -> int:
    """Returns the number of CPUs for which a per-CPU map has a value."""
    text = Path("/sys/devices/system/cpu/possible").read_text().strip()
    return int(text.replace("-", ",").split(",")[-1]) + 1


class PinnedMap(Closing):
    """An open pinned map, checked against abi.h.

    key_bytes: size of the map's key in abi.h; value_bytes: size of the map's value in abi.h. Raises
    CarefulError: the map is missing, not permitted, or of another shape.
    """

    def __init__(self, path: Path, key_bytes: int, value_bytes: int) -> None:
        self.path = path
        self._fd = lib.bpf_obj_get(os.fsencode(path))
        if self._fd < 0:
            error = _failed(str(path))
            instance = path.parent.name.replace("%2e", ".").replace("%25", "%")
            if error.errno == errno.ENOENT and instances.mounts_differ(instance):
                text = "careful pinned this map in another mount namespace: `ip netns exec` makes "
                text += "such a namespace each time, `nsenter --net=` does not"
                error = CarefulError(errno.ENOENT, text, str(path))
            raise error
        # struct bpf_map_info: type, id, key_size, value_size, max_entries ...
        info = struct.unpack_from("=5I", _object_info(self._fd, 24, str(path)))
        if info[2:4] != (key_bytes, value_bytes):
            self.close()
            text = (
                f"its keys and values have {info[2]} and {info[3]} bytes instead of "
                f"{key_bytes} and {value_bytes}: carefuld is from another build; restart it"
            )
            raise CarefulError(errno.EPROTO, text, str(path))
        self.entries = info[4]
        per_cpu = info[0] in (5, 6, 10)  # BPF_MAP_TYPE_PERCPU_HASH, _ARRAY, LRU_PERCPU_HASH
        self._bytes = (value_bytes + 7) // 8 * 8 * possible_cpus() if per_cpu else value_bytes

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def lookup(self, key: int) -> bytes:
        """Returns the value of a key; for a per-CPU map the values of all CPUs in order."""
        value = ffi.new("char[]", self._bytes)
        if lib.bpf_map_lookup_elem(self._fd, ffi.new("uint32_t *", key), value) < 0:
            raise _failed(f"{self.path} [{key}]")
        return bytes(ffi.buffer(value))

    def update(self, key: int, value: bytes) -> None:
        given = ffi.from_buffer(value)
        if lib.bpf_map_update_elem(self._fd, ffi.new("uint32_t *", key), given, 0) < 0:
            raise _failed(f"{self.path} [{key}]")

    def delete(self, key: int) -> None:
        """Empties an entry of a map that can have empty ones."""
        if lib.bpf_map_delete_elem(self._fd, ffi.new("uint32_t *", key)) < 0:
            raise _failed(f"{self.path} [{key}]")


def tune_map(instance: str) -> PinnedMap:
    """Opens the tune map of an instance."""
    return tune_map_at(pins(instance) / "tune")


def tune_map_at(path: Path) -> PinnedMap:
    """Opens the tune map that is pinned at a path."""
    return PinnedMap(path, 4, sizeof("careful_tune_entry"))


def live_map(instance: str) -> PinnedMap:
    """Opens the live map of an instance."""
    return PinnedMap(pins(instance) / "live", 4, sizeof("careful_live_entry"))


def peers_map(instance: str) -> PinnedMap:
    """Opens the peers map of an instance."""
    return PinnedMap(pins(instance) / "peers", 4, sizeof("careful_peer_entry"))


def session(peers: PinnedMap, slot: int) -> CData:
    """Returns a slot's `struct careful_peer_entry`; its cookie is 0 if no session is open."""
    entry = ffi.new("struct careful_peer_entry *")
    ffi.memmove(entry, peers.lookup(slot), sizeof("careful_peer_entry"))
    return entry


def sessions(instance: str) -> dict[int, CData]:
    """Returns slot -> `struct careful_peer_entry` of each open session."""
    with peers_map(instance) as peers:
        entries = {slot: session(peers, slot) for slot in range(peers.entries)}
    return {slot: entry for slot, entry in entries.items() if entry.cookie}


def xdp_counters(instance: str) -> dict[str, int]:
    """Returns XDP's counters by name, summed over all CPUs."""
    counts = {}
    with PinnedMap(pins(instance) / "counters", 4, 8) as counters:
        for key, name in enum_names("careful_xdp_counter", "CAREFUL_XDP_").items():
            if key < lib.CAREFUL_XDP_COUNTERS:
                raw = counters.lookup(key)
                counts[name] = sum(struct.unpack(f"={len(raw) // 8}Q", raw))
    return counts
