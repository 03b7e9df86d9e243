"""Owners of memory, and the hosts that they share it with, as keys or addresses."""

from __future__ import annotations

import base64
import errno
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from careful._abi import lib, pack
from careful.control.instance.instances import Instance
from careful.control.options import command_line
from careful.control.options.config import Config
from careful.control.options.keys import Keys, Trusted, check
from careful.control.options.up_options import UpOptions
from careful.errors import CarefulError

#: Instead of a host: every host.
EVERY = "*"
_ACCESS = {"r": lib.CAREFUL_MEMORY_READ, "rw": lib.CAREFUL_MEMORY_READ | lib.CAREFUL_MEMORY_WRITE}


def access_of(bits: int) -> str:
    """Returns "r", "rw", "w" or "" for CAREFUL_MEMORY_*."""
    return "r" * bool(bits & lib.CAREFUL_MEMORY_READ) + "w" * bool(bits & lib.CAREFUL_MEMORY_WRITE)


@dataclass(frozen=True)
class Hosts:
    """Translates between hosts' names and their identities in the memory service.

    Attributes:
        config: the names of addresses.
        keys: keys of the local carefuld; None: its sessions need no key, and hosts are addresses.
    """

    config: Config
    keys: Keys | None

    @classmethod
    def of(cls, instance: Instance, config: Config) -> Hosts:
        """Returns the hosts that an instance knows."""
        return cls.by_options(command_line.read(instance.argv), config)

    @classmethod
    def by_options(cls, options: UpOptions, config: Config) -> Hosts:
        """Returns the hosts that an instance with these effective options knows."""
        return cls(config, Keys(Path(options.keys)) if options.keys else None)

    def _trusted(self) -> list[Trusted]:
        return self.keys.trusted() if self.keys else []

    def identity(self, host: str) -> tuple[int, bytes]:
        """Returns a host's identity in the memory service: kind and bytes.

        host: its name or address; with keys also a public key. Raises CarefulError: the host is
        unknown, or has no trusted key here.
        """
        if self.keys is not None:
            trusted = self._trusted()
            keys = [one.key for one in trusted if host in (one.name, one.address, one.key)]
            if not keys:
                try:
                    keys = [check(host)]
                except CarefulError:
                    address = self.config.resolve(host).ip
                    keys = [one.key for one in trusted if one.address == address]
            if not keys:
                text = "no key of this host is trusted here: name the host by its public key"
                raise CarefulError(errno.ENOKEY, text, host)
            return int(lib.CAREFUL_MEMORY_KEY), base64.b64decode(keys[0])
        parsed = ipaddress.ip_address(self.config.resolve(host).ip)
        mapped = b"\0" * 10 + b"\xff\xff" + parsed.packed if parsed.version == 4 else parsed.packed
        return int(lib.CAREFUL_MEMORY_ADDRESS), mapped.ljust(32, b"\0")

    def name(self, by: int, raw: bytes) -> str:
        """Returns the name of a host, else its address or key."""
        if by == lib.CAREFUL_MEMORY_KEY:
            key = base64.b64encode(raw).decode()
            trusted = next((host for host in self._trusted() if host.key == key), None)
            return (trusted.name or trusted.address) if trusted else key
        if by != lib.CAREFUL_MEMORY_ADDRESS:
            return EVERY
        address = ipaddress.IPv6Address(raw[:16])
        text = str(address.ipv4_mapped or address)
        return self.config.node_at(self.config.resolve(text)) or text

    def _known(self, host: str) -> tuple[int, bytes]:
        """Returns identity(), or that of any host for "" and EVERY."""
        return (0, bytes(32)) if host in ("", EVERY) else self.identity(host)

    def _shared(self, host: str, access: str) -> bytes:
        if access not in _ACCESS:
            raise ValueError(f"access {access!r} must be r or rw")
        by, raw = self._known(host)
        return pack("careful_memory_host", by=by, access=_ACCESS[access], id=raw)

    def ask(
        self, name: str, owner: str = "", nbytes: int = 0, share: Mapping[str, str] | None = None
    ) -> bytes:
        """Returns the payload of CREATE, OPEN, DELETE and STAT.

        owner: the host that made the piece, "" for this host or else any; nbytes: size of a new
        piece; share: hosts that may use a new piece -> "r" or "rw".
        """
        raw = name.encode()
        if not 0 < len(raw) <= lib.CAREFUL_MEMORY_NAME_BYTES or not name.isprintable():
            text = f"must be a name of 1 to {lib.CAREFUL_MEMORY_NAME_BYTES} printable bytes"
            raise CarefulError(errno.EINVAL, text, repr(name))
        hosts = [self._shared(host, access) for host, access in (share or {}).items()]
        if len(hosts) > lib.CAREFUL_MEMORY_HOSTS:
            text = f"share it with at most {lib.CAREFUL_MEMORY_HOSTS} hosts, or with every host: *"
            raise CarefulError(errno.E2BIG, text, name)
        by, known = self._known(owner)
        fields = {"owner.by": by, "owner.id": known, "name_bytes": len(raw)}
        head = pack("careful_memory_ask", bytes=nbytes, hosts=len(hosts), **fields)
        return b"".join([head, *hosts, raw])
