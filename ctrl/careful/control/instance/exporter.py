"""Collects the exporter's figures from each running carefuld of this machine."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from careful.control.instance import choice, instances, live_latency, status
from careful.control.instance.instances import Instance
from careful.control.instance.usage import Use, ask
from careful.control.options.config import Config
from careful.daemon.client import Client
from careful.errors import CarefulError

#: Time for a carefuld to answer, seconds: Prometheus waits 10 s for the whole answer.
ANSWER_S = 3.0
#: carefulds that are asked at the same time.
_AT_ONCE = 16


@dataclass(frozen=True)
class Seen:
    """The figures of one carefuld.

    Attributes:
        found: from status.gather(); None if carefuld died, does not answer, or is full.
        use: requests and latencies; None if carefuld does not report them.
        messages: slot -> number of timed live messages, and their total time in seconds.
        full: carefuld has no room for another client.
    """

    name: str
    found: status.Status | None = None
    use: Use | None = None
    messages: Mapping[int, tuple[int, float]] = field(default_factory=dict)
    full: bool = False


def _each(running: Iterable[Instance], settings: Config) -> list[Seen]:
    """Asks all queues at the same time, so that silent queues cost one timeout together.

    Prometheus adds up the queues.
    """
    queues = [queue for instance in running for queue in instances.queues(instance)]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(partial(_one, settings=settings), queues))


def _one(instance: Instance, settings: Config) -> Seen:
    try:
        figures = status.gather_queue(instance, settings, ANSWER_S)
    except CarefulError as error:
        if error.errno in (errno.EACCES, errno.EPERM):  # carefuld may be well
            raise
        return Seen(instance.name, full=error.errno == errno.EUSERS)
    try:
        with Client(instance.socket, f"carefuld of {instance.name}", ANSWER_S) as client:
            use = ask(client)
    except CarefulError:  # an older carefuld, or a full one
        use = None
    messages = {}
    with suppress(CarefulError):  # only root may read the map
        found = live_latency.messages(instance.name, with_stored=False)
        messages = {slot: (count, ns / 1e9) for slot, (count, ns) in found.items() if count}
    return Seen(instance.name, figures, use, messages)


def look(ifname: str | None, name: str | None, settings: Config) -> list[Seen]:
    """Looks at the instance of an interface or a name; without both, at all that run here.

    An instance that died or does not answer has no figures, so that alerts see it. Raises
    CarefulError if the choice is ambiguous or we may not ask.
    """
    if ifname is not None or name:
        instance = choice.on_interface(ifname or "", name) if ifname else instances.find(name or "")
        return _each([instance], settings) if instance.pid else [Seen(instance.name)]
    seen = _each(choice.named_or_all(None, None), settings)
    names = {instance.name for instance in seen}  # another queue may still run
    return [*seen, *(Seen(died) for died in instances.died() if died not in names)]
