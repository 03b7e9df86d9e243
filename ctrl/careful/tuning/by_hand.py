"""Classes that were set by hand: `tune auto` leaves them alone until they are given back.

Owns which peers and classes a command of `tune` means by that. Calls state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from careful.control.tune_entry import Setting
from careful.control.tune_peers import Row, Session
from careful.tuning.items import NET_TX, STORE
from careful.tuning.state import Store


def pin(session: Session, rows: Sequence[Row], settings: Mapping[int, Setting]) -> None:
    """Keep what was set; rows: the peers that it was set for, none for all."""
    addresses = {int(one["slot"]): str(one["address"]) for one in session.peers}
    peers = [addresses[row.slot] for row in rows if row.slot in addresses]
    items = [index for index, one in settings.items() if one.plan is not None]
    for first, sink in ((STORE, "store"), (NET_TX, "net_tx")):
        items += [first + index for index, one in settings.items() if sink in one.minpulse_bytes]
    if items and session.instance.directory.is_dir():
        Store(session.instance.directory).pin(peers, items)


def release(session: Session, classes: Iterable[int]) -> None:
    """Give classes of all peers back."""
    if session.instance.directory.is_dir():
        Store(session.instance.directory).release(classes)
