"""Changes options of a running instance without ending its sessions.

Owns which options can change; datapath/daemon/reload.c applies them.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from careful._abi import lib
from careful.control.carefuld import daemon
from careful.control.host import links
from careful.control.instance import instances
from careful.control.instance.instances import Instance
from careful.control.options import command_line
from careful.control.options.up_options import OPTIONS, UpOptions
from careful.daemon.client import Client
from careful.errors import CarefulError

#: Options of `up` that carefuld accepts while it runs.
LIVE = tuple(name for name, one in OPTIONS.items() if one.live)


def _live(options: UpOptions) -> UpOptions:
    return UpOptions(**{name: getattr(options, name) for name in LIVE})


def _send(queue: Instance, options: UpOptions) -> None:
    """Sends the options to the carefuld of a queue.

    Raises CarefulError if carefuld refuses or does not answer; then nothing has changed.
    """
    # Sends the keys, too: exports depend on them.
    argv = ["carefuld", "--ifname", queue.ifname]
    argv += command_line.words(replace(_live(options), keys=options.keys))
    payload = b"".join(os.fsencode(word) + b"\0" for word in argv)
    with Client(queue.socket, f"carefuld {queue.name}") as client:
        answer = client.call(lib.CAREFUL_IPC_RELOAD, f"carefuld {queue.name}", payload=payload)
    if answer.payload:
        text = f"{answer.payload.decode(errors='replace')}; nothing has changed"
        raise CarefulError(errno.EINVAL, text, f"instance {queue.name}")


def _send_all(queues: Sequence[Instance], options: UpOptions, before: UpOptions) -> None:
    """Sends the options to all queues. If a carefuld refuses, restores the options of the others.

    A carefuld that does not answer gets its former options, too: it may read both later, in order.
    Raises like _send().
    """
    for k, queue in enumerate(queues):
        try:
            _send(queue, options)
        except CarefulError as error:
            for other in queues[: k + (error.errno == errno.ETIMEDOUT)]:
                with suppress(CarefulError):
                    _send(other, before)
            raise


def reload(ifname: str, name: str, options: UpOptions) -> list[str]:
    """Gives a running instance these options; returns a phrase for each change.

    options: all options of the instance, as for daemon.up(). Raises CarefulError: the instance is
    not up, or an option needs a restart; then nothing has changed.
    """
    options = daemon.checked(ifname, name, options)
    with instances.changing(name):
        instance = instances.find(name)
        is_there = instance.ifname == links.find(ifname).name and instance.here is not False
        if not instance.pid or not is_there:
            text = f"is not up on {ifname}; first: carefulctl up {ifname}"
            raise CarefulError(errno.ENOTCONN, text, f"instance {name}")
        running = command_line.read(instance.argv)
        differing = command_line.differences(options, running)
        if fixed := [phrase for field, phrase in differing.items() if field not in LIVE]:
            text = f"a restart is needed: {'; '.join(fixed)}; nothing has changed"
            raise CarefulError(errno.EBUSY, text, f"instance {name}")
        changed = list(command_line.differences(running, options).values())
        if changed:
            queues = instances.queues(instance)
            _send_all(queues, options, running)
            for queue in queues:
                instances.remember(queue, _argv(queue, running, options))
        return changed


def _argv(queue: Instance, running: UpOptions, options: UpOptions) -> list[str]:
    unset = replace(running, **dict.fromkeys(LIVE))
    others = command_line.without_options(queue.argv)
    return [*others, *command_line.words(_live(options).over(unset))]
