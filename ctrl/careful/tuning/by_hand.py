"""Classes that were set by hand: `tune auto` leaves them alone until they are given back.

Owns which peers and classes a command of `tune` means by that. Calls state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from careful.control import tune_peers
from careful.control.config import Config
from careful.control.tune_entry import Setting
from careful.control.tune_peers import Row, Session
from careful.tuning.items import NET_TX, STORE
from careful.tuning.state import Store


def change(
    session: Session, hosts: Sequence[str], config: Config, settings: Mapping[int, Setting]
) -> list[Row]:
    """Set some classes, and keep that they were, before a controller can write there again.

    Arguments, result and errors are those of tune_peers.change().
    """
    items = [index for index, one in settings.items() if one.plan is not None]
    for first, sink in ((STORE, "store"), (NET_TX, "net_tx")):
        items += [first + index for index, one in settings.items() if sink in one.minpulse_bytes]

    def pin(queue: Session, slots: Sequence[int]) -> None:
        addresses = {int(one["slot"]): str(one["address"]) for one in queue.peers}
        if items and queue.instance.directory.is_dir():
            Store(queue.instance.directory).pin([addresses[slot] for slot in slots], items)

    return tune_peers.change(session, hosts, config, settings, pin)


def release(session: Session, classes: Iterable[int]) -> None:
    """Give classes of all peers back."""
    given = list(classes)
    for queue in session.queues:
        if queue.instance.directory.is_dir():
            Store(queue.instance.directory).release(given)
