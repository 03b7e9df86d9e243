"""Classes set by hand: `tune auto` leaves them alone until `tune` releases them."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping, Sequence

from careful._abi import lib, sizeof
from careful.control.instance import maps
from careful.control.instance.records import ETHERNET_BYTES
from careful.control.options.config import Config
from careful.control.plans import tune_peers
from careful.control.plans.tune_entry import Setting, one_writer
from careful.control.plans.tune_peers import Row, Session
from careful.errors import CarefulError
from careful.plan import CLASS_COUNT, Plan
from careful.tuning.settings import NET_TX, STORE, Kick, Pulse, Value
from careful.tuning.state import Store

#: IPv4's and UDP's headers.
_IPV4_BYTES = 28
#: The default of the sinks net_tx and store.
_MINPULSE_BYTES = 64 << 10


def change(
    session: Session, hosts: Sequence[str], config: Config, settings: Mapping[int, Setting]
) -> list[Row]:
    """Sets some classes and records them as set by hand before a controller can write them again.

    Arguments, result and errors are those of tune_peers.change().
    """
    values: dict[int, Value] = {}
    for index, setting in settings.items():
        pulses = setting.minpulse_bytes
        if setting.plan is not None:
            values[index] = setting.plan
        if "store" in pulses:
            values[STORE + index] = Pulse(pulses["store"])
        if "net_tx" in pulses:
            values[NET_TX + index] = Kick(pulses["net_tx"])

    def pin(queue: Session, slots: Sequence[int]) -> None:
        addresses = {peer.slot: peer.address for peer in queue.peers}
        if values and queue.instance.directory.is_dir():
            Store(queue.instance.directory).pin([addresses[slot] for slot in slots], values)

    return tune_peers.change(session, hosts, config, settings, pin)


def undo(session: Session, hosts: Sequence[str], config: Config) -> list[Row]:
    """Sets what `up` sets (datapath/message/plan.c, plan_default) and releases all classes.

    Arguments, result and errors are those of tune_peers.change().
    """
    pulses = {"net_tx": _MINPULSE_BYTES, "store": _MINPULSE_BYTES, "host_tx": 0, "host_rx": 0}
    headers = ETHERNET_BYTES + _IPV4_BYTES + sizeof("careful_hdr") + sizeof("careful_am")
    used = session.used
    if used is None:
        raise CarefulError(errno.ENOENT, "careful is not up there", session.instance.name)
    frame_bytes = min(used.frame_bytes, used.buffer_bytes)  # what one receive buffer holds
    payload = frame_bytes - headers - int(lib.CAREFUL_DIGEST_BYTES)
    default = Setting(Plan.fixed(payload), pulses)
    settings = dict.fromkeys(range(CLASS_COUNT), default)
    rows = tune_peers.change(session, hosts, config, settings, lambda *_: None)
    release(session, settings)
    return rows


def release(session: Session, classes: Iterable[int]) -> None:
    """Lets the controller change these classes again, for all peers."""
    given = list(classes)
    for queue in session.queues:
        if queue.instance.directory.is_dir():
            with one_writer(maps.pins(queue.instance.name)):
                Store(queue.instance.directory).release(given)
