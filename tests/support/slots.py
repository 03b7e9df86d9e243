"""carefuld's peers and maps in memory, for tests of tuning without a datapath."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from careful._abi import ffi, lib, sizeof
from careful.address import Address, resolve
from careful.control.instance import instances, maps


@dataclass
class Memory:
    """A map in memory."""

    nbytes: int
    values: dict[int, bytes] = field(default_factory=dict)

    def lookup(self, key: int) -> bytes:
        return self.values.get(key, bytes(self.nbytes))

    def update(self, key: int, value: bytes) -> None:
        self.values[key] = value

    def close(self) -> None:
        """Keeps the pinned maps."""

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass
class World:
    """carefuld's peers, as its socket reports them, and the maps of its instance."""

    maps: dict[str, Memory] = field(default_factory=dict)
    slots: dict[int, str] = field(default_factory=dict)
    cookie: int = 0

    def map(self, path: Path, _: int, nbytes: int) -> Memory:
        return self.maps.setdefault(path.name, Memory(nbytes))

    def info(self) -> Any:
        one: Any = ffi.new("struct careful_info *")
        one.device.ifname = b"eth1"
        return one

    def peers(self) -> list[Any]:
        return [_peer(slot, ip) for slot, ip in self.slots.items()]

    def give(self, slot: int, ip: str) -> None:
        """Gives a slot to a new session of a host."""
        self.slots[slot] = ip
        entry: Any = ffi.new("struct careful_peer_entry *")
        self.cookie += 1
        entry.cookie = self.cookie
        self.maps["peers"].update(slot, bytes(ffi.buffer(entry)))

    def settings(self, slot: int) -> bytes:
        return self.maps["tune"].lookup(slot)


def _peer(slot: int, ip: str) -> Any:
    one: Any = ffi.new("struct careful_peer_info *")
    address = address_of(ip).sockaddr()
    ffi.memmove(ffi.addressof(one, "address"), address, sizeof("sockaddr_storage"))
    one.slot, one.state = slot, lib.CAREFUL_PEER_UP
    return one


def address_of(ip: str) -> Address:
    return replace(resolve(ip), port=7000)


def begin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    """Makes a world whose instance is called i."""
    one = World()
    for name in ("tune", "live", "peers"):
        one.map(tmp_path / name, 4, sizeof(f"careful_{name.replace('peers', 'peer')}_entry"))
    (tmp_path / "i").mkdir()
    monkeypatch.setenv("CAREFUL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setattr(maps, "PinnedMap", one.map)
    monkeypatch.setattr(maps, "PINS", tmp_path)
    monkeypatch.setattr(instances, "RUN", tmp_path)
    return one
