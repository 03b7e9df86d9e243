"""From a host's name to the way there: its address, and the instance that reaches it."""

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

#: To wait for an answer at one address of a host before the next one is tried, seconds.
_SOON_S = 0.5


def _sessions(one: Instance) -> dict[Address, int]:
    """Whom a carefuld has a session with, or is asking for one, and its state."""
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
    """Of an instance with several queues: that of the peer, and where it is reached by that.

    A session that is there stays where it is; for another one the peer chooses from those of our
    queues that have fewest.
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
    """How to reach a host's files, and the instance on the way.

    Args:
        host: a node's name, or an address.
        instance: its name, by option or CAREFUL_INSTANCE.
        config: with the nodes' names.
        timeout_s: for the handshake, seconds.

    Raises:
        CarefulError: the host is unknown, or careful is not up on the way to it.
    """
    address = _answering(config.resolve_all(host), host, instance, timeout_s)
    one = instances.choose(instance, address)
    one, address = _queue(one, address, host, timeout_s)
    return Route(one.socket, one.name, address, host, timeout_s), one


def find(
    host: str, instance: str | None, config: Config, timeout_s: float
) -> tuple[Route, status.Effect]:
    """How to reach a host's files, and what is in effect on the way; see route()."""
    way, one = route(host, instance, config, timeout_s)
    return way, status.effect_of(one)


def find_if(
    host: str, instance: str | None, config: Config, wanted: bool | None
) -> tuple[tuple[Route, status.Effect] | None, str]:
    """What `find` finds, or None and why, where careful can be done without.

    Args:
        host: a node's name, or an address.
        instance: its name, by option or CAREFUL_INSTANCE.
        config: with the nodes' names.
        wanted: False: it is not asked for; None: if careful is up here.

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
