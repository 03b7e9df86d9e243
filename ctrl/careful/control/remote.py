"""From a host's name to its address and the instance that reaches it."""

from __future__ import annotations

import errno
from contextlib import suppress
from dataclasses import replace

from careful._abi import ffi, lib
from careful.address import Address
from careful.control import instances, status
from careful.control.config import Config
from careful.control.instances import Instance
from careful.daemon.client import Client
from careful.daemon.route import Route
from careful.errors import CarefulError

#: Time for an answer at one address before the next one is tried, seconds.
_SOON_S = 0.5


def _sessions(one: Instance) -> dict[Address, int]:
    """Returns the peers with a session, or a handshake under way, and its state."""
    gone = (lib.CAREFUL_PEER_NONE, lib.CAREFUL_PEER_FAILED)
    with Client(one.socket, f"carefuld of {one.name}") as client:
        return {
            Address.from_sockaddr(bytes(ffi.buffer(ffi.addressof(raw, "address")))): raw.state
            for raw in client.peers()
            if raw.state not in gone
        }


def _queue(
    one: Instance, address: Address, host: str, timeout_s: float
) -> tuple[Instance, Address]:
    """Returns the queue of an instance that has the peer's session, and the peer's address there.

    An existing session stays on its queue. For a new one the peer chooses among our queues with the
    fewest sessions.
    """
    queues = instances.queues(one)
    if len(queues) == 1 or address.port:
        return one, address
    sessions = [_sessions(each) for each in queues]
    for each, found in zip(queues, sessions, strict=True):
        for peer in found:
            if peer.ip == address.ip:
                return each, peer
    least = min(map(len, sessions))
    fewest = [k for k, found in enumerate(sessions) if len(found) == least]
    port = _base_port(one)
    asking = queues[fewest[0]]
    with Client(asking.socket, f"carefuld of {asking.name}") as client:
        answer = client.connect(
            replace(address, port=port),
            host,
            timeout_s,
            args=[sum(1 << k for k in fewest), 0, 0, 0],
            also=-errno.EREMCHG,
        )
    if answer.status:
        return queues[answer.args[0]], replace(address, port=answer.args[1])
    return asking, replace(address, port=port)


def _base_port(one: Instance) -> int:
    with Client(one.socket, f"carefuld of {one.name}") as client:
        return int(client.info().port)


def _answering(
    addresses: list[Address], host: str, instance: str | None, timeout_s: float
) -> Address:
    """Returns the first address at which the host answers soon (compare RFC 8305), or the first."""
    wait_s = min(_SOON_S, timeout_s)
    for address in addresses if len(addresses) > 1 else ():
        with suppress(CarefulError):
            one = instances.choose(instance, address)
            with Client(one.socket, f"carefuld of {one.name}") as client:
                client.connect(address, host, wait_s)
            return address
    return addresses[0]


def route(
    host: str, instance: str | None, config: Config, timeout_s: float
) -> tuple[Route, instances.Instance]:
    """Returns the route to a host's files, and the instance on it.

    Args:
        host: a node's name, or an address.
        instance: its name, by option or CAREFUL_INSTANCE.
        config: with the nodes' names.
        timeout_s: for the handshake, seconds.

    Raises:
        CarefulError: the host is unknown, or careful is not up on its interface.
    """
    address = _answering(config.resolve_all(host), host, instance, timeout_s)
    one = instances.choose(instance, address)
    one, address = _queue(one, address, host, timeout_s)
    return Route(one.socket, one.name, address, host, timeout_s), one


def find(
    host: str, instance: str | None, config: Config, timeout_s: float
) -> tuple[Route, status.Effect]:
    """Returns the route to a host's files and what is in effect on it; see route()."""
    way, one = route(host, instance, config, timeout_s)
    return way, status.effect_of(one)


def find_if(
    host: str, instance: str | None, config: Config, wanted: bool | None
) -> tuple[tuple[Route, status.Effect] | None, str]:
    """Returns what find() does, or None and the reason if careful may be left out.

    Args:
        host: a node's name, or an address.
        instance: its name, by option or CAREFUL_INSTANCE.
        config: with the nodes' names.
        wanted: False: do not use careful; None: use careful if it is up here.

    Raises:
        CarefulError: careful is wanted, and not up here.
    """
    if wanted is False:
        return None, "not asked for"
    try:
        return find(host, instance, config, timeout_s=5.0), ""
    except CarefulError as error:
        if wanted:
            raise
        return None, str(error)
