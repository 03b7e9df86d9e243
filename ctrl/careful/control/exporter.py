"""What the exporter tells of this machine's carefulds: one look at each that runs.

Owns which they are. Calls status, live and use.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from careful.control import instances, live, status
from careful.control.config import Config
from careful.control.instances import Instance
from careful.control.use import Use, ask
from careful.daemon.client import Client
from careful.errors import CarefulError

#: How long a carefuld may take to answer, seconds: Prometheus waits 10 s for all that there is.
ANSWER_S = 3.0
#: So many are asked at a time.
_AT_ONCE = 16


@dataclass(frozen=True)
class Seen:
    """One carefuld.

    Attributes:
        name: of the instance.
        found: as status.gather() has it; None where carefuld died, or does not answer, or is full.
        use: what was asked of it; None where it does not say.
        messages: slot -> live messages that were timed, and what they took, seconds.
        full: carefuld answers, that all its places for clients are taken.
    """

    name: str
    found: status.Status | None = None
    use: Use | None = None
    messages: Mapping[int, tuple[int, float]] = field(default_factory=dict)
    full: bool = False


def messages(name: str) -> dict[int, tuple[int, float]]:
    """Live messages to each slot that were timed so far, and what they took, seconds."""
    found: dict[int, tuple[int, float]] = {}
    with suppress(CarefulError):  # only root may read the map
        for (slot, _, _), cell in live.cells(name).items():
            count, total_s = found.get(slot, (0, 0.0))
            found[slot] = count + cell.count, total_s + cell.sum_ns / 1e9
    return found


def _each(running: Iterable[Instance], settings: Config) -> list[Seen]:
    """Each queue as a carefuld of its own: sums are for who asks the metrics.

    All at once: of several that do not answer only one is waited for.
    """
    each = [queue for one in running for queue in instances.queues(one)]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(partial(_one, settings=settings), each))


def _one(instance: Instance, settings: Config) -> Seen:
    try:
        found = status.gather_queue(instance, settings, ANSWER_S)
    except CarefulError as error:
        if error.errno in (errno.EACCES, errno.EPERM):  # whether it answers cannot be told
            raise
        return Seen(instance.name, full=error.errno == errno.EUSERS)
    try:
        with Client(instance.socket, f"carefuld of {instance.name}", ANSWER_S) as client:
            use = ask(client)
    except CarefulError:  # an older one does not know the question; or it is full by now
        use = None
    return Seen(instance.name, found, use, messages(instance.name))


def look(ifname: str | None, name: str | None, settings: Config) -> list[Seen]:
    """Look at the instance of an interface or a name; without both at all that run here.

    One that died, or does not answer, is there without figures: that is for alerts.

    Raises:
        CarefulError: it is not clear which is meant, or we may not ask it.
    """
    if ifname is not None or name:
        one = instances.on_interface(ifname or "", name) if ifname else instances.find(name or "")
        return _each([one], settings) if one.pid else [Seen(one.name)]
    seen = _each(instances.named_or_all(None, None), settings)
    names = {one.name for one in seen}  # of several queues the first may run yet
    return [*seen, *(Seen(died) for died in instances.died() if died not in names)]
