"""The parts of `careful://` that distributed calls: listeners, connectors, addresses.

Programs of one host talk over TCP on 127.0.0.1 with the same port numbers, since careful has no
session with its own host. An address is that of careful's interface plus a port (hub.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import struct
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import psutil
from distributed.comm.addressing import parse_host_port, unparse_host_port
from distributed.comm.core import BaseListener, Comm, CommClosedError, Connector
from distributed.comm.registry import Backend
from distributed.comm.tcp import MAX_BUFFER_SIZE, TCP
from distributed.utils import ensure_ip, get_ip
from tornado import netutil
from tornado.iostream import IOStream, StreamClosedError
from tornado.tcpclient import TCPClient
from tornado.tcpserver import TCPServer

from careful.dask.comm import CarefulComm
from careful.dask.hub import HANDLERS_PER_SERVICE, OPEN, OPENED, Hub
from careful.dask.link import Kind, Link
from careful.errors import CarefulError
from careful.node import Operation, Peer

PREFIX = "careful://"
_LOOPBACK = "127.0.0.1"
_ANY = ("", "0.0.0.0", "::")


def _own_addresses() -> set[str]:
    interfaces = psutil.net_if_addrs().values()
    return {address.address.partition("%")[0] for addresses in interfaces for address in addresses}


def _address_of(ifname: str) -> str:
    addresses = [one.address for one in psutil.net_if_addrs().get(ifname, ())]
    matching = [one for one in addresses if one.count(".") == 3] or [
        one for one in addresses if ":" in one and len(one) != 17
    ]
    return str(matching[0]).partition("%")[0] if matching else str(get_ip())


def _refuse_encryption(loc: str, options: Mapping[str, object]) -> None:
    if options.get("require_encryption"):
        name = f"{PREFIX + loc!r}"
        raise RuntimeError(
            f"encryption required by Dask configuration, refusing communication from/to {name}: "
            "Dask cannot see careful's own encryption (`carefulctl up --seal encrypt`)"
        )


class CarefulConnector(Connector):
    """Opens comms to listeners. instance: the carefuld to use; None: as careful.attach()."""

    client = TCPClient()

    def __init__(self, instance: str | None) -> None:
        self._instance = instance

    async def connect(self, address: str, deserialize: bool = True, **options: object) -> Comm:
        """Opens a comm. Raises CommClosedError: there is no listener, or no route to its host."""
        _refuse_encryption(address, options)
        host, port = parse_host_port(address)
        if ensure_ip(host) in _own_addresses():
            return await self._local(port, address, deserialize)
        try:
            hub = await Hub.acquire(self._instance)
        except CarefulError as error:
            raise CommClosedError(f"{PREFIX}{address}: {error}") from error
        comm = CarefulComm(hub, deserialize)
        try:
            await self._open(hub, comm, host, port)
        except CarefulError as error:
            comm.abort()
            text = "no program listens there" if error.errno in _NO_LISTENER else str(error)
            raise CommClosedError(f"{PREFIX}{address}: {text}") from error
        except BaseException:
            comm.abort()
            raise
        return comm

    async def _open(self, hub: Hub, comm: CarefulComm, host: str, port: int) -> None:
        peer = await hub.node.aconnect(host)
        handler = port % HANDLERS_PER_SERVICE
        label = hub.label()
        payload = OPEN.pack(hub.own_handler(), label, comm.number, hub.program)
        words = (Kind.OPEN, port // HANDLERS_PER_SERVICE, 0, 0)
        opening = peer.request(handler, payload, words)
        try:
            answer = (await opening).payload
        except asyncio.CancelledError:
            opening.add_done_callback(lambda opened: _close_unwanted(hub, peer, handler, opened))
            raise
        try:
            remote_number, program = OPENED.unpack_from(answer)
            own_ip = answer[OPENED.size :].decode()
        except (struct.error, UnicodeDecodeError):
            raise CarefulError(
                errno.EPROTO, "the program that listens there is not Dask", host
            ) from None
        link = hub.link(program, lambda: Link(hub, peer, handler, program))
        comm.attach(link, remote_number)
        comm.set_addresses(
            PREFIX + unparse_host_port(own_ip, label), PREFIX + unparse_host_port(host, port)
        )

    async def _local(self, port: int, address: str, deserialize: bool) -> Comm:
        try:
            stream = await self.client.connect(
                _LOOPBACK, port, max_buffer_size=int(MAX_BUFFER_SIZE)
            )
            own_port = stream.socket.getsockname()[1]
        except (StreamClosedError, OSError) as error:
            raise CommClosedError(f"{PREFIX}{address}: {error}") from error
        local = PREFIX + unparse_host_port(parse_host_port(address)[0], own_port)
        return TCP(stream, local, PREFIX + address, deserialize)


def _close_unwanted(hub: Hub, peer: Peer, handler: int, opened: Operation) -> None:
    async def close(remote_number: int) -> None:
        with contextlib.suppress(CarefulError):
            await peer.request(handler, b"", (Kind.CLOSE, remote_number, 0, 0))

    with contextlib.suppress(CarefulError, struct.error):
        hub.task(close(OPENED.unpack_from(opened.result().payload)[0]))


#: Errors of OPEN if there is no such listener.
_NO_LISTENER = (errno.ENOSYS, errno.ECONNREFUSED)


class CarefulListener(BaseListener):
    """Accepts comms at a port.

    Args:
        instance: the carefuld to use; None: as careful.attach().
        loc: address and port; without a port, a free one is chosen.
        comm_handler: called with each comm.
        deserialize, allow_offload: passed to each comm.
        default_host: the address by which others reach this host.
        default_port: used if the address has no port.
        **options: ignored.

    Attributes:
        prefix: read by distributed.
    """

    prefix = PREFIX

    def __init__(
        self,
        instance: str | None,
        loc: str,
        comm_handler: Callable[[Comm], Awaitable[None]],
        deserialize: bool = True,
        allow_offload: bool = True,
        default_host: str | None = None,
        default_port: int = 0,
        **options: object,
    ) -> None:
        super().__init__()
        _refuse_encryption(loc, options)
        self._instance = instance
        self.host, self.port = parse_host_port(loc, default_port)
        self._default_host = default_host
        self._comm_handler = comm_handler
        self._deserialize = deserialize
        self._allow_offload = allow_offload
        self._hub: Hub | None = None
        self._server: TCPServer | None = None

    async def start(self) -> None:
        """Starts listening. Raises OSError: the port is taken, or careful is not up."""
        local = self.host not in _ANY and ensure_ip(self.host).startswith("127.")
        hub = None if local else await Hub.acquire(self._instance)
        try:
            self._bind(hub)
        except BaseException:
            if hub is not None:
                hub.release()
            raise
        self._hub = hub

    def _bind(self, hub: Hub | None) -> None:
        """Binds a port of careful, and the same port of TCP on 127.0.0.1."""
        ports = [self.port] if self.port or hub is None else hub.free_ports()
        for port in ports:
            try:
                sockets = netutil.bind_sockets(port, address=_LOOPBACK, backlog=1024)
            except OSError as error:
                if error.errno != errno.EADDRINUSE or port == ports[-1]:
                    raise
                continue
            break
        else:
            raise CarefulError(errno.EADDRINUSE, "all ports are taken", self.host)
        self.port = sockets[0].getsockname()[1]
        try:
            if hub is not None:
                hub.bind(self.port, self._accept)
        except BaseException:
            for one in sockets:
                one.close()
            raise
        self._server = TCPServer(max_buffer_size=int(MAX_BUFFER_SIZE))
        self._server.handle_stream = self._accept_local  # type: ignore[method-assign]
        self._server.add_sockets(sockets)

    def get_host_port(self) -> tuple[str, int]:
        return self.host or "0.0.0.0", self.port

    def stop(self) -> None:
        """Stops accepting; open comms continue."""
        server, self._server = self._server, None
        if server is not None:
            server.stop()
        hub, self._hub = self._hub, None
        if hub is not None:
            hub.services.pop(self.port, None)
            hub.release()

    def _accept(self, link: Link, remote_number: int, label: int) -> int:
        assert self._hub is not None
        comm = CarefulComm(self._hub, self._deserialize)
        comm.attach(link, remote_number)
        comm.set_addresses(self.contact_address, PREFIX + unparse_host_port(comm.peer_ip, label))
        self._hub.task(self._serve(comm))
        return comm.number

    async def _accept_local(self, stream: IOStream, address: tuple[str, int]) -> None:
        if self._server is None:
            stream.close()
            return
        host = parse_host_port(self.contact_address)[0]
        peer = PREFIX + unparse_host_port(host, address[1])
        await self._serve(TCP(stream, self.contact_address, peer, self._deserialize))

    async def _serve(self, comm: Comm) -> None:
        comm.allow_offload = self._allow_offload
        if self._server is None:
            comm.abort()
            return
        with contextlib.suppress(CommClosedError):
            await self.on_connection(comm)
            await self._comm_handler(comm)

    @property
    def listen_address(self) -> str:
        return PREFIX + unparse_host_port(*self.get_host_port())

    @property
    def contact_address(self) -> str:
        host = self.host
        if host in _ANY:
            ifname = self._hub.node.ifname if self._hub is not None else ""
            host = self._default_host or _address_of(ifname)
        return PREFIX + unparse_host_port(host, self.port)


class CarefulBackend(Backend):
    """`careful://` for distributed, with the carefuld that connectors use, and that listeners use;
    None: as careful.attach().
    """

    def __init__(
        self, connector_instance: str | None = None, listener_instance: str | None = None
    ) -> None:
        self._connector_instance, self._listener_instance = connector_instance, listener_instance

    def get_connector(self) -> CarefulConnector:
        return CarefulConnector(self._connector_instance)

    def get_listener(
        self,
        loc: str,
        handle_comm: Callable[[Comm], Awaitable[None]],
        deserialize: bool,
        **options: Any,
    ) -> CarefulListener:
        return CarefulListener(self._listener_instance, loc, handle_comm, deserialize, **options)

    def get_address_host(self, loc: str) -> str:
        return parse_host_port(loc, 0)[0]

    def get_address_host_port(self, loc: str) -> tuple[str, int]:
        return parse_host_port(loc)

    def resolve_address(self, loc: str) -> str:
        host, port = parse_host_port(loc)
        return unparse_host_port(ensure_ip(host), port)

    def get_local_address_for(self, loc: str) -> str:
        host, _ = parse_host_port(loc)
        return unparse_host_port(get_ip(ensure_ip(host)))
