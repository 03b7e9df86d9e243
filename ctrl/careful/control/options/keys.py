"""The key of this host and the keys that it trusts, as files in a directory.

Each file is replaced as a whole; only root can read private keys. carefuld reads the files again
when they change (datapath/secure/keys.h).
"""

from __future__ import annotations

import base64
import binascii
import errno
import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from careful._abi import ffi, lib
from careful.closing import descriptor
from careful.control.options.up_options import UpOptions
from careful.errors import CarefulError, about, from_os

#: The directory, unless --keys or `keys` of [up] names another.
DEFAULT = Path("/etc/careful/keys")
#: Instead of a directory: no keys, even if DEFAULT has some.
NONE = "none"
_HEAD = "# Trusted hosts: ADDRESS KEY [NAME]; written by carefulctl key.\n"
_BYTES = int(lib.CAREFUL_SECRET_BYTES)
#: The largest file that carefuld reads (datapath/secure/keys.c).
_TEXT_BYTES_MAX = (1 << 16) - 1


@dataclass(frozen=True)
class Trusted:
    """A host whose key is trusted.

    Attributes:
        address: numeric.
        key: public, base64.
        name: the host's name when it was trusted; may be "".
    """

    address: str
    key: str
    name: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.address, self.key, self.name)))


def _decode(text: str, what: str) -> bytes:
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != _BYTES:
        raise CarefulError(errno.EINVAL, f"must be a key: {_BYTES} bytes in base64", what)
    return raw


def check(text: str) -> str:
    """Returns a public key in its written form. Raises CarefulError if it is not a key."""
    raw = _decode(text, f"key {text!r}")
    if lib.careful_key_check(raw):
        raise CarefulError(errno.EINVAL, "is not a valid public key", f"key {text!r}")
    return base64.b64encode(raw).decode()


def _check_owner(info: os.stat_result, path: Path) -> None:
    if info.st_uid not in (0, os.geteuid()):
        raise CarefulError(errno.EACCES, "belongs to another user: chown root it", str(path))


def _is_address(text: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError, ValueError):
            return bool(socket.inet_pton(family, text))
    return False


def in_effect(options: UpOptions) -> UpOptions:
    """Returns the options with the key directory in effect; None: sessions need no key."""
    if options.keys == NONE:
        return replace(options, keys=None)
    if options.keys is None:
        with suppress(OSError):
            if (DEFAULT / "private").exists():
                return replace(options, keys=str(DEFAULT))
        return options
    return replace(options, keys=str(Path(options.keys).resolve()))


class Keys:
    """The key files in a directory.

    directory: made with the first key.
    """

    def __init__(self, directory: Path = DEFAULT) -> None:
        self.directory = directory

    @contextmanager
    def _changing(self, make: bool = True) -> Iterator[None]:
        """Locks the directory for a command that reads and rewrites its files; others wait."""
        with about(str(self.directory)):
            if make:
                self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with descriptor(fd):
            with suppress(OSError):  # a file system without locks
                fcntl.flock(fd, fcntl.LOCK_EX)
            yield

    def _write(self, name: str, text: str, mode: int) -> None:
        path, new = self.directory / name, self.directory / f".{name}.new"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with about(str(path)):
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            new.unlink(missing_ok=True)
            with os.fdopen(os.open(new, flags, mode), "w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            new.replace(path)

    def _secret(self, name: str) -> bytes | None:
        """Returns a private key, or None if there is none.

        Raises CarefulError if others can read it, or it is malformed.
        """
        path = self.directory / name
        try:
            info, text = path.stat(), path.read_text(encoding="ascii", errors="replace")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise from_os(error, str(path)) from None
        if not stat.S_ISREG(info.st_mode) or info.st_mode & 0o077:
            message = "others may read this key: chmod 600 it; if it was read, make a new key"
            raise CarefulError(errno.EACCES, message, str(path))
        _check_owner(info, path)
        return _decode(text.strip(), str(path))

    @staticmethod
    def _public(private: bytes) -> str:
        public = ffi.new("uint8_t[]", _BYTES)
        if lib.careful_key_public(private, public):
            raise CarefulError(errno.EINVAL, "the private key is not valid")
        return base64.b64encode(bytes(public)).decode()

    def public(self, name: str = "private") -> str | None:
        """Returns the public key of this host, or of its prepared `next` key; None if none."""
        private = self._secret(name)
        return None if private is None else self._public(private)

    def new(self, later: bool = False, instead: bool = False) -> str:
        """Makes a private key and returns its public key.

        Args:
            later: keep the current key; prepare the new key for a later call with `instead`.
            instead: replace the current key, by the one that `later` prepared if there is one.

        Raises CarefulError: there is a key already, or the file cannot be written.
        """
        with self._changing():
            if later:
                private = os.urandom(_BYTES)
                self._write("next", base64.b64encode(private).decode() + "\n", 0o600)
                return self._public(private)
            if not instead and (self.directory / "private").exists():
                text = "this host has a key: --later and then --replace give it another"
                raise CarefulError(errno.EEXIST, text, str(self.directory / "private"))
            private = self._secret("next") or os.urandom(_BYTES)
            self._write("private", base64.b64encode(private).decode() + "\n", 0o600)
            with suppress(OSError):
                (self.directory / "next").unlink()
            return self._public(private)

    def new_cluster(self, instead: bool = False) -> Path:
        """Makes a cluster's common key; returns the file, which all hosts of the cluster need.

        instead: replace the current key. Raises CarefulError: there is a key already, or the file
        cannot be written.
        """
        path = self.directory / "cluster"
        with self._changing():
            if not instead and path.exists():
                text = "the cluster key exists; --replace makes another, which all hosts need"
                raise CarefulError(errno.EEXIST, text, str(path))
            self._write("cluster", base64.b64encode(os.urandom(_BYTES)).decode() + "\n", 0o600)
        return path

    def check(self) -> str:
        """Describes the keys. Raises CarefulError if carefuld would refuse them."""
        if self.public() is None:
            text = "this host has no key: carefulctl key new"
            raise CarefulError(errno.ENOENT, text, str(self.directory / "private"))
        cluster = self._secret("cluster") is not None
        trusted = self.trusted()
        path = self.directory / "trusted"
        with suppress(FileNotFoundError):
            info = path.stat()
            if info.st_mode & 0o022:
                raise CarefulError(errno.EACCES, "others may write it: chmod 644 it", str(path))
            _check_owner(info, path)
        for host in trusted:
            try:
                check(host.key)
            except CarefulError as error:
                text = f"host {host.address}: {error}"
                raise CarefulError(errno.EINVAL, text, str(path)) from None
            if not _is_address(host.address):
                text = f"{host.address!r} must be an address: carefulctl key trust looks names up"
                raise CarefulError(errno.EINVAL, text, str(path))
        hosts = len({host.address for host in trusted})
        count = "1 host is" if hosts == 1 else f"{hosts} hosts are"
        return f"{count} trusted{', and a key of the cluster' if cluster else ''}"

    def trusted(self) -> list[Trusted]:
        """Returns the trusted hosts, the latest first.

        Raises CarefulError if the file cannot be read or a line is malformed.
        """
        path, hosts = self.directory / "trusted", []
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return []
        except OSError as error:
            raise from_os(error, str(path)) from None
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split(None, 2)
            if not words or words[0].startswith("#"):
                continue
            if len(words) < 2:
                message = f"line {number}: must be ADDRESS KEY [NAME]"
                raise CarefulError(errno.EINVAL, message, str(path))
            hosts.append(Trusted(*words))
        return hosts

    def _put(self, trusted: list[Trusted]) -> None:
        text = _HEAD + "".join(f"{host}\n" for host in trusted)
        if len(os.fsencode(text)) > _TEXT_BYTES_MAX:
            message = f"would have more than {_TEXT_BYTES_MAX} bytes, more than carefuld reads: "
            message += "carefulctl key remove hosts that no longer exist"
            raise CarefulError(errno.EFBIG, message, str(self.directory / "trusted"))
        self._write("trusted", text, 0o644)

    def trust(self, address: str, key: str, name: str = "") -> Trusted:
        """Trusts a key of the host at an address; the host's former keys stay trusted.

        address: numeric; key: public. Raises CarefulError: the key is malformed, or our own.
        """
        host = Trusted(address, check(key), "" if name.strip("[]") == address else name)
        if host.key in (self.public(), self.public("next")):
            raise CarefulError(errno.EINVAL, "is this host's own key", f"key {key}")
        with self._changing():
            others = [
                other
                for other in self.trusted()
                if (other.address, other.key) != (address, host.key)
            ]
            self._put([host, *others])
        return host

    def remove(self, *which: str) -> list[Trusted]:
        """Removes trusted hosts by address, name or key, and returns them.

        Raises CarefulError if none matches.
        """
        with self._changing(make=False):
            trusted, wanted = self.trusted(), set(which)
            removed = [host for host in trusted if wanted & {host.address, host.name, host.key}]
            if not removed:
                raise CarefulError(
                    errno.ENOENT, "is neither a host with a trusted key nor a trusted key", which[0]
                )
            self._put([host for host in trusted if host not in removed])
        return removed
