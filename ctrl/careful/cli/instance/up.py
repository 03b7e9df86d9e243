"""`carefulctl up` and `down`: starts and stops careful on an interface."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import click

from careful.cli import complete
from careful.cli.command import command, flag, option
from careful.cli.common import instance_option, json_option, say_folded, show
from careful.cli.local import Local, shared
from careful.cli.params import BYTES, Whole, duration
from careful.control.carefuld import daemon, reload, tuner
from careful.control.instance import choice, instances, status
from careful.control.options import config, keys, up_options
from careful.control.options.up_options import OPTIONS, UpOptions
from careful.control.state import state_dir
from careful.render.instance import status as report


def _type(name: str) -> click.ParamType | None:  # type: ignore[type-arg]
    """Returns the type of an option on the command line; None: text."""
    one = OPTIONS[name]
    if one.choices:
        return click.Choice(one.choices)
    if name.endswith(("_us", "_ms")):
        per_s = 10**6 if name.endswith("_us") else 1000
        return duration(per_s, one.most / per_s, whole=True)
    if name.endswith("_bytes"):
        return BYTES
    return Whole(one.least, one.most) if one.most else None


def _declared(function: Callable[..., object]) -> Callable[..., object]:
    """Adds the options that control/options/up_options.py declares."""
    for name in reversed(OPTIONS):
        one, words = OPTIONS[name], f"{up_options.flag(name)} {name}"
        text = one.help + (f"  [default: {one.shown}]" if one.shown else "")
        if up_options.kind(name) is bool:
            add = flag(words, text, default=None)
        else:
            metavar = "TIME" if name.endswith(("_us", "_ms")) else one.metavar
            add = option(words, _type(name), text, metavar=metavar, multiple=one.repeated)
        function = add(function)
    return function


@command(
    examples=[
        ("carefulctl up eth1", "fetch and measure only; export nothing"),
        (
            "carefulctl up eth1 --export /srv/a --export /srv/b:rw",
            "export two trees, the second writable",
        ),
        ("carefulctl up eth1 --lend 4GiB", "lend memory to peers"),
        ("carefulctl up eth1 --tune auto", "tune it all the while"),
        ("carefulctl up eth1 --export /srv/c --reload", "export another tree; sessions go on"),
        ("carefulctl up eth1 --seal encrypt", "nobody on the way can read or forge frames"),
    ],
    topics=(
        "exports",
        "files",
        "keys",
        "memory",
        "privileges",
        "protocols",
        "security",
        "services",
    ),
)
@click.argument("ifname", metavar="IFACE", shell_complete=complete.interface)
@_declared
@option(
    "--tune",
    click.Choice(config.TUNE),
    "auto: run tune auto next to carefuld, until down.  [default: off]",
)
@flag(
    "--foreground", "Become carefuld, which logs to standard error: for systemd's carefuld@IFACE."
)
@flag(
    "--reload reloads",
    "Give these options to the carefuld that runs; its sessions go on (`help services`).",
)
@shared
def up(
    ifname: str,
    here: Local,
    export: tuple[str, ...],
    tune: str | None,
    foreground: bool,
    reloads: bool,
    seal: tuple[str, ...],
    **given: object,
) -> None:
    """Bring up careful on IFACE: start carefuld, and return once it is ready.

    Prints the settings in effect: XDP mode, copy or zero-copy, the window and the exports;
    `status -v` shows all. With --xdp auto, native and generic mode are measured with the first
    peer, before any data. The better mode stays, and is remembered for this driver and kernel.
    If changing the mode takes the link down, the driver's own mode stays.

    If careful is already up with the same options, nothing changes and the exit status is 0. If it
    is up with other options, `up` fails and names them. --reload applies the new options while
    careful runs, or names those that need a restart. `doctor` reports in advance what `up` would
    refuse. For systemd, see `carefulctl help services`.
    """
    settings = here.settings
    name = here.instance or ifname
    options = UpOptions(
        export=export or None,
        seal=",".join(seal) or None,
        **given,  # type: ignore[arg-type]
    )
    options = keys.in_effect(options.over(settings.options(name)))
    if options.seal is not None:
        options = replace(options, seal=settings.sealed(options.seal))
    options = replace(options, export=settings.exported(options.export))
    tune = tune or settings.tune(name)
    if reloads:
        if foreground:
            raise click.UsageError(
                "--reload needs a running carefuld, and --foreground starts one: use one of them"
            )
        _reload(ifname, name, options, tune, here)
        return
    if foreground:
        if tune == "auto":
            unit = instances.unit("careful-tune", ifname)
            _warn(f"--foreground does not start tune auto: systemctl enable --now {unit}")
        daemon.become(ifname, name, options, state_dir.place(settings))
    done = daemon.up(ifname, name, options, state_dir.place(settings))
    if tune == "auto":
        for one in instances.queues(done.instance):
            tuner.start(ifname, one, here.config_path)
    found = status.gather(done.instance, settings)
    if not found.keyed and not done.already:
        text = f"any host that reaches UDP port {found.port} can connect (carefulctl key new)"
        _warn(f"warning: no keys: {text}")
    figures = {"already": done.already, **vars(found)}
    show(figures, report.up(found, done.already), instance=name, tune=tune, **vars(options))


def _reload(ifname: str, name: str, options: UpOptions, tune: str, here: Local) -> None:
    changed = reload.reload(ifname, name, options)
    instance = instances.find(name)
    if "--foreground" not in instance.argv:  # else careful-tune@IFACE is a separate service
        for one in instances.queues(instance):
            if tune == "auto":
                tuner.start(ifname, one, here.config_path)
            else:
                tuner.stop(one)
    found = status.gather(instance, here.settings)
    figures = {"already": True, "changed": changed, **vars(found)}
    text = report.reloaded(found, changed)
    show(figures, text, instance=name, tune=tune, **vars(options))


def _warn(text: str) -> None:
    say_folded(f"carefulctl: {text}", err=True)


@command(examples=[("carefulctl down eth1", "stop it; nothing is left behind")])
@click.argument("ifname", metavar="[IFACE]", required=False, shell_complete=complete.interface)
# For systemd's carefuld@IFACE, which must not end a carefuld that it did not start.
@flag("--dead", "", hidden=True)
@instance_option
@json_option
def down(ifname: str | None, instance: str | None, dead: bool) -> None:
    """Take careful off IFACE: stop carefuld, and remove everything it left.

    This also removes what a carefuld that was killed left behind. Without IFACE, it stops the only
    carefuld of this host.
    """
    ifname = ifname or choice.choose(instance).ifname
    done = daemon.down(ifname, instance, dead)
    figures = {"process": done.process or "was not running", **vars(done.cleared)}
    show(figures, report.down(ifname, done), ifname=ifname)
