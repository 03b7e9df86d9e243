"""The instance that a command means, by interface, name or host."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from contextlib import suppress

from careful.address import Address
from careful.control.host import links, systemd_socket
from careful.control.instance import instances
from careful.control.instance.instances import Instance
from careful.errors import CarefulError


def _started(instance: Instance) -> Instance:
    """Returns the instance, after any start by systemd has finished.

    Raises CarefulError if it does not serve in time.
    """
    if instance.pid:
        return instance
    systemd_socket.wait(
        instance.socket, lambda: instances.find(instance.name).pid, instances.START_S
    )
    now = instances.find(instance.name)
    if reason := instances.starting(now):
        text = f"not up after {instances.START_S:.0f} s: {reason}"
        raise CarefulError(errno.ENOENT, text, f"instance {instance.name}")
    return now


def on_interface(ifname: str, name: str | None) -> Instance:
    """Returns the instance that a command about an interface means.

    name: the instance's name, by option or CAREFUL_INSTANCE. Without a name, the command means the
    instance that runs on this interface, else the instance with the interface's name. Raises
    CarefulError: no such interface; several instances; the named instance runs on another
    interface; or, without a name, it runs in another network namespace.
    """
    if name:
        instance = instances.find(name)
        if instance.ifname and ifname != instance.ifname:
            link = links.find(ifname)  # ifname may be an alternative name
            if link.name != instance.ifname:
                text = f"runs on {instance.ifname}, not on {ifname}"
                raise CarefulError(errno.EINVAL, text, f"instance {name}")
        return instance
    if not ifname or "/" in ifname or ifname.startswith("."):
        links.find(ifname)  # raises, and lists the interfaces
    by_name, found = instances.find(ifname), _here_on(ifname)
    if not found and not by_name.pid:
        with suppress(CarefulError):  # there is no such interface
            found = _here_on(links.find(ifname).name)  # ifname may be an alternative name
    if len(found) > 1:
        raise _ambiguous(found)
    if not found and by_name.here is False:
        text = f"careful is not up here: instance {by_name.name} ({by_name.carefuld}) runs in "
        text += f"another network namespace; to choose it: --instance {by_name.name}"
        raise CarefulError(errno.ENOENT, text, ifname)
    return found[0] if found else by_name


def _here_on(ifname: str) -> list[Instance]:
    return [instance for instance in _of_here(instances.running()) if instance.ifname == ifname]


def _of_here(everywhere: Sequence[Instance]) -> list[Instance]:
    """Returns the instances in our network namespace, or else those that may be there."""
    here = [instance for instance in everywhere if instance.here is not False]
    return [instance for instance in here if instance.pid != instances.UNSEEN] or here


def _ambiguous(here: list[Instance]) -> CarefulError:
    listed = ", ".join(f"{instance.name} ({instance.ifname})" for instance in here)
    return CarefulError(errno.EINVAL, f"several instances run: {listed}; choose by --instance")


def _must_run(instance: Instance, ifname: str | None = None) -> Instance:
    if instance.pid:
        return instance
    what = ifname or f"instance {instance.name}"
    if reason := instances.starting(instance):
        raise CarefulError(errno.ENOENT, reason, what)
    if pid := instances.owner_without_daemon(instance.name):
        who = instances.process(pid)
        text = f"belongs to {who}, a program with a queue of its own, and has no carefuld"
        raise CarefulError(errno.EBUSY, text, what)
    deaths = map(instances.death, (instance, *instances.other_queues(instance.name)))
    state = next(filter(None, deaths), "careful is not up")
    raise CarefulError(errno.ENOENT, f"{state}: carefulctl up {ifname or 'IFACE'}", what)


def choose(name: str | None, address: Address | None = None) -> Instance:
    """Returns the running instance that a command means; waits while systemd is starting it.

    name: the instance's name, by option or CAREFUL_INSTANCE; address: the host that the command is
    about. Raises CarefulError: no instance runs, or the choice is ambiguous.
    """
    if name:
        return _must_run(_started(instances.find(name)))
    chosen = _choose([*instances.running(), *instances.coming()], address)
    return chosen if chosen.pid else _choose([_must_run(_started(chosen))], address)


def _choose(everywhere: list[Instance], address: Address | None) -> Instance:
    here = _of_here(everywhere)
    if not here and everywhere:
        listed = ", ".join(instance.name for instance in everywhere)
        text = f"careful is up only in other network namespaces ({listed}); choose by --instance"
        raise CarefulError(errno.ENOENT, text)
    if not here:
        raise CarefulError(errno.ENOENT, "careful is not up: carefulctl up IFACE")
    if len(here) == 1 or address is None:
        if len(here) > 1:
            raise _ambiguous(here)
        return here[0]
    ifname = links.route_interface(address)
    if ifname == "lo":
        raise CarefulError(errno.ENOTUNIQ, "", str(address))
    reaching = [instance for instance in here if instance.ifname == ifname]
    if len(reaching) == 1:
        return reaching[0]
    if reaching:
        raise _ambiguous(reaching)
    text = f"is reached through {ifname}, where careful is not up: carefulctl up {ifname}"
    raise CarefulError(errno.ENOENT, text, str(address))


def named_or_all(ifname: str | None, name: str | None) -> list[Instance]:
    """Returns the running instance of an interface or a name; without both, all that run here.

    Raises CarefulError if the named instance does not run.
    """
    if ifname is not None:
        instance = on_interface(ifname, name)
        if not instance.pid:
            links.find(ifname)
        return [_must_run(instance, ifname)]
    if name:
        return [_must_run(instances.find(name))]
    return _of_here(instances.running())
