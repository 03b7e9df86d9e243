"""From a host's name to the way there: its address, and the instance that reaches it."""

from __future__ import annotations

from careful.control import instances, status
from careful.control.config import Config
from careful.transfer.session import Route


def find(
    host: str, instance: str | None, config: Config, timeout_s: float
) -> tuple[Route, status.Effect]:
    """How to reach a host's files, and what is in effect on the way.

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
    return Route(one.socket, one.name, address, host, timeout_s), status.effect_of(one)
