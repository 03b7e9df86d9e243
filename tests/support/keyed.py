"""Hosts of a lab with keys that trust each other."""

from __future__ import annotations

import json
from pathlib import Path

from hosts import Host


class Keyed:
    """Two hosts, each with a key in its folder and the other's trusted."""

    def __init__(self, one: Host, other: Host) -> None:
        self.hosts = (one, other)
        for host in self.hosts:
            self.key(host, "new")
        for host, peer in ((one, other), (other, one)):
            self.key(host, "trust", peer.name, self.public(peer))

    @staticmethod
    def folder(host: Host) -> Path:
        return host.own / "keys"

    def key(self, host: Host, *args: str) -> dict[str, object]:
        """Run `carefulctl key`."""
        done = host.ctl("key", *args, "--keys", self.folder(host), "--json")
        found: dict[str, object] = json.loads(done.stdout)
        return found

    def public(self, host: Host) -> str:
        return str(self.key(host, "show")["key"])

    def up(self, *options: str) -> None:
        for host in self.hosts:
            host.up("--keys", self.folder(host), *options)
