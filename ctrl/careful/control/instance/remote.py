"""Finds the address of a host, and the instance and queue that reach it."""

from __future__ import annotations

import errno
from contextlib import suppress
from dataclasses import replace

from careful._abi import ffi, lib
from careful.address import Address
from careful.control.instance import choice, instances, records, status
from careful.control.instance.instances import Instance
from careful.control.options.config import Config
from careful.daemon.client import Client
from careful.daemon.route import Route
from careful.errors import CarefulError

#: Time for an answer at one address before the next one is tried, seconds.
_SOON_S = 0.5


def _sessions(instance: Instance) -> dict[Address, int]:
    """Returns the peers with a session, or a handshake under way, and the session's state."""
    gone = (lib.CAREFUL_PEER_NONE, lib.CAREFUL_PEER_FAILED)
    with Client(instance.socket, f"carefuld of {instance.name}") as client:
        return {
            Address.from_sockaddr(bytes(ffi.buffer(ffi.addressof(raw, "address")))): raw.state
            for raw in client.peers()
            if raw.state not in gone
        }


def _queue(
    instance: Instance, address: Address, host: str, timeout_s: float
) -> tuple[Instance, Address]:
    """Returns the queue of an instance that has the peer's session, and the peer's address there.

    For a new session the peer chooses among our queues with the fewest sessions.
    """
    queues = instances.queues(instance)
    if len(queues) == 1 or address.port:
        return instance, address
    sessions = [_sessions(queue) for queue in queues]
    for queue, peers in zip(queues, sessions, strict=True):
        for peer in peers:
            if peer.ip == address.ip:
                return queue, peer
    least = min(map(len, sessions))
    fewest = [k for k, peers in enumerate(sessions) if len(peers) == least]
    port = int(status.info_of(instance).port)
    asking = queues[fewest[0]]
    with Client(asking.socket, f"carefuld of {asking.name}") as client:
        answer = client.connect(
            replace(address, port=port),
            host,
            timeout_s,
            args=[sum(1 << k for k in fewest), 0, 0, 0],
            accepted_status=-errno.EREMCHG,
        )
    if answer.status:
        return queues[answer.args[0]], replace(address, port=answer.args[1])
    return asking, replace(address, port=port)


def _answering(
    addresses: list[Address], host: str, instance: str | None, timeout_s: float
) -> Address:
    """Returns the first address that answers soon (compare RFC 8305), or the first of all."""
    wait_s = min(_SOON_S, timeout_s)
    for address in addresses if len(addresses) > 1 else ():
        with suppress(CarefulError):
            chosen = choice.choose(instance, address)
            with Client(chosen.socket, f"carefuld of {chosen.name}") as client:
                client.connect(address, host, wait_s)
            return address
    return addresses[0]


def route(
    host: str, instance: str | None, config: Config, timeout_s: float
) -> tuple[Route, instances.Instance]:
    """Returns the route to a host's files, and the instance on it.

    host: a node's name, or an address; instance: its name, by option or CAREFUL_INSTANCE;
    timeout_s: time limit of the handshake, seconds. Raises CarefulError: the host is unknown, or
    careful is not up on its interface.
    """
    address = _answering(config.resolve_all(host), host, instance, timeout_s)
    chosen = choice.choose(instance, address)
    chosen, address = _queue(chosen, address, host, timeout_s)
    return Route(chosen.socket, chosen.name, address, host, timeout_s), chosen


def find(
    host: str, instance: str | None, config: Config, timeout_s: float
) -> tuple[Route, records.Effect]:
    """Returns the route to a host's files and what is in effect on it; see route()."""
    path, chosen = route(host, instance, config, timeout_s)
    return path, records.effect(status.info_of(chosen))


def find_if(
    host: str, instance: str | None, config: Config, wanted: bool | None
) -> tuple[tuple[Route, records.Effect] | None, str]:
    """Returns the result of find(), or None and the reason why careful is not used.

    host: a node's name, or an address; instance: its name, by option or CAREFUL_INSTANCE; wanted:
    True requires careful, False does not use it, None uses it if it is up here. Raises
    CarefulError: careful is required, and not up here.
    """
    if wanted is False:
        return None, "not asked for"
    try:
        return find(host, instance, config, timeout_s=5.0), ""
    except CarefulError as error:
        if wanted:
            raise
        return None, str(error)
