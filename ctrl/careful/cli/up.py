"""`carefulctl up` and `down`: careful on an interface, and off it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from careful.cli import complete
from careful.cli.command import command
from careful.cli.common import instance_option, json_option, say, shared, show
from careful.cli.params import Whole, WholeDuration
from careful.control import (
    config,
    daemon,
    instances,
    keys,
    links,
    reload,
    state_dir,
    status,
    tuner,
)
from careful.render import status as report


@command(
    examples=[
        ("carefulctl up eth1", "fetch and measure only; export nothing"),
        (
            "carefulctl up eth1 --export /srv/a --export /srv/b:rw",
            "export two trees, the second writable",
        ),
        ("carefulctl up eth1 --tune auto", "tune it all the while"),
        ("carefulctl up eth1 --export /srv/c --reload", "export another tree; sessions go on"),
        ("carefulctl up eth1 --seal encrypt", "nothing of it can be read or forged on the way"),
    ],
    topics=("files", "protocols", "security", "services"),
)
@click.argument("ifname", metavar="IFACE", shell_complete=complete.interface)
@click.option(
    "--peers",
    type=Whole(*config.RANGES["peers"]),
    metavar="P",
    help="How many peers share the receive buffers (R).  [default: 8]",
)
@click.option(
    "--export",
    multiple=True,
    metavar="DIR[:rw[,owners]]",
    help="Let peers read DIR, or with :rw write it too (with :rw,owners, owners and set-user-ID "
    "bits as root may; with :rw,devices or :ro,devices, block devices below DIR, too). "
    "DIR:rw,host=HOST or DIR:ro,host=HOST is for that host alone. May be repeated.",
)
@click.option(
    "--insecure", is_flag=True, default=None, help="Export with :rw though there are no keys."
)
@click.option(
    "--group",
    metavar="GROUP",
    help="Whose members may use careful here, besides root (`carefulctl help security`).",
)
@click.option(
    "--name", metavar="NAME", help="What peers call this host.  [default: the instance's name]"
)
@click.option(
    "--xdp",
    type=click.Choice(config.XDP_MODES),
    help="XDP mode; auto measures which is better, once.  [default: auto]",
)
@click.option(
    "--require-zerocopy", is_flag=True, default=None, help="Fail if frames would have to be copied."
)
@click.option(
    "--wait",
    type=click.Choice(config.WAIT_MODES),
    help="How carefuld waits for frames.  [default: adaptive]",
)
@click.option(
    "--protocol",
    type=click.Choice(config.PROTOCOLS),
    help="Traditional keeps copies and sends them again (`help protocols`).  [default: careful]",
)
@click.option(
    "--spin",
    "spin_us",
    type=WholeDuration(10**6, 1.0),
    metavar="TIME",
    help="How long adaptive spins before it blocks.  [default: 50us]",
)
@click.option(
    "--queue",
    type=Whole(*config.RANGES["queue"]),
    metavar="Q",
    help="The RX and TX queue to use.  [default: 0]",
)
@click.option(
    "--queues",
    type=Whole(*config.RANGES["queues"]),
    metavar="N",
    help="Use queues 0 to N-1, and spread peers over them (`help hosts`).  [default: 1]",
)
@click.option(
    "--port",
    type=Whole(*config.RANGES["port"]),
    metavar="PORT",
    help="UDP port. A VLAN or macvlan on an interface with careful needs one of its own (`help "
    "promise`).  [default: 51966]",
)
@click.option(
    "--rx-buffers",
    type=Whole(*config.RANGES["rx_buffers"]),
    metavar="N",
    help="Receive buffers, a power of two.  [default: 512]",
)
@click.option(
    "--tx-buffers",
    type=Whole(*config.RANGES["tx_buffers"]),
    metavar="N",
    help="Send buffers, a power of two.  [default: 512]",
)
@click.option(
    "--reserve",
    type=Whole(*config.RANGES["reserve"]),
    metavar="N",
    help="Receive buffers kept for large messages (`help reservation`).  [default: 0]",
)
@click.option(
    "--keys",
    metavar="DIR|none",
    help="Directory of the keys that a session takes (`help key`).  [default: /etc/careful/keys, "
    "if this host has one there]",
)
@click.option(
    "--seal",
    multiple=True,
    metavar="MODE[@HOST]",
    help="auth: frames prove who sent them; encrypt: nor can they be read on the way; off. Of all "
    "peers, or of one; may be repeated. Takes keys, and the same at the other end.  "
    "[default: off]",
)
@click.option(
    "--sync",
    "sync_ms",
    type=WholeDuration(1000, 3600.0),
    metavar="TIME",
    help="Ask a peer that has been silent for this long what it received.  [default: 200ms]",
)
@click.option(
    "--stall",
    "stall_ms",
    type=WholeDuration(1000, 3600.0),
    metavar="TIME",
    help="Drop a peer that has been silent for this long.  [default: 30s]",
)
@click.option(
    "--file-writes",
    type=click.Choice(config.FILE_WRITES),
    help="Who copies what comes into the page cache: the engine, or the kernel's workers on "
    "other CPUs (`help speed`).  [default: engine]",
)
@click.option(
    "--cpu", type=Whole(*config.RANGES["cpu"]), metavar="N", help="CPU to run carefuld on."
)
@click.option(
    "--tune",
    type=click.Choice(config.TUNE),
    help="auto: run tune auto beside carefuld, until down.  [default: off]",
)
@click.option(
    "--foreground",
    is_flag=True,
    help="Become carefuld, which logs to standard error: for systemd's carefuld@IFACE.",
)
@click.option(
    "--reload",
    "reloads",
    is_flag=True,
    help="It is up: give it these options instead, and let sessions go on (`help services`).",
)
@shared
def up(
    ifname: str,
    instance: str | None,
    config_path: Path | None,
    as_json: bool,
    export: tuple[str, ...],
    tune: str | None,
    foreground: bool,
    reloads: bool,
    seal: tuple[str, ...],
    **given: object,
) -> None:
    """Bring up careful on IFACE: start carefuld, and return once it is ready.

    Prints the settings in effect: XDP mode, copy or zero-copy, the window and what limits it,
    and the exports. With --xdp auto, native and generic mode are measured with the first peer,
    before any data; the better one stays, and is remembered for this driver and kernel. Where
    a change takes the link down, the driver's own mode stays.

    If careful is already up with the same options, nothing changes and the
    exit status is 0; if it is up with other options, `up` fails and names them. --reload gives it
    those options while it runs, or names what takes a restart. `doctor` tells beforehand what `up`
    would refuse. Under systemd: `carefulctl help services`.
    """
    settings = config.load(config_path)
    name = instance or ifname
    options = config.UpOptions(
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
            raise click.UsageError("--reload is for one that is up, --foreground starts one")
        _reload(ifname, name, options, tune, settings, config_path, as_json)
        return
    if foreground:
        if tune == "auto":
            unit = instances.unit("careful-tune", ifname)
            _warn(f"tune auto does not begin with --foreground: systemctl enable --now {unit}")
        daemon.become(ifname, name, options, state_dir.place(settings))
    done = daemon.up(ifname, name, options, state_dir.place(settings))
    if not options.keys and not done.already:
        _warn("no key (carefulctl key new): whoever can send to the port gets a session")
    if tune == "auto":
        for one in instances.queues(done.instance):
            tuner.start(ifname, one, config_path)
    found = status.gather(done.instance, settings)
    if found["xdp_mode"] == "generic" and (text := links.rps_text(ifname)):
        _warn(f"{text}: {links.rps_advice(ifname)}")
    inputs = {"ifname": ifname, "instance": name, **vars(options), "tune": tune}
    text = report.up(found, done.already)
    show(as_json, "up", inputs, {"already": done.already, **found}, text)


def _reload(
    ifname: str,
    name: str,
    options: config.UpOptions,
    tune: str,
    settings: config.Config,
    config_path: Path | None,
    as_json: bool,
) -> None:
    changed = reload.reload(ifname, name, options)
    instance = instances.find(name)
    if "--foreground" not in instance.argv:  # else careful-tune@IFACE is a service of its own
        for one in instances.queues(instance):
            if tune == "auto":
                tuner.start(ifname, one, config_path)
            else:
                tuner.stop(one)
    found = status.gather(instance, settings)
    inputs = {"ifname": ifname, "instance": name, **vars(options), "tune": tune}
    figures = {"already": True, "changed": changed, **found}
    show(as_json, "up", inputs, figures, report.reloaded(found, changed))


def _warn(text: str) -> None:
    say(f"carefulctl: {text}", err=True)


@command(examples=[("carefulctl down eth1", "stop it; nothing is left behind")])
@click.argument("ifname", metavar="IFACE", shell_complete=complete.interface)
# For systemd's carefuld@IFACE, which must not end what it did not start.
@click.option("--dead", is_flag=True, hidden=True)
@instance_option
@json_option
def down(ifname: str, instance: str | None, dead: bool, as_json: bool) -> None:
    """Take careful off IFACE: stop carefuld, and remove everything it left.

    This also removes what a carefuld that was killed left behind.
    """
    done = daemon.down(ifname, instance, dead)
    figures = {"process": done.process or "was not running", **vars(done.cleared)}
    inputs = {"ifname": ifname, "instance": instance}
    show(as_json, "down", inputs, figures, report.down(ifname, done))
