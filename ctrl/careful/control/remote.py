"""From a host's name to the way there: its address, and the instance that reaches it."""

from __future__ import annotations

from careful.control import instances, status
from careful.control.config import Config
from careful.daemon.route import Route
from careful.errors import CarefulError


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
    address = config.resolve(host)
    one = instances.choose(instance, address)
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
