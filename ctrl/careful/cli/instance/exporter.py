"""`carefulctl exporter`: metrics for Prometheus."""

from __future__ import annotations

import click

from careful.cli import complete
from careful.cli.command import command, flag, option
from careful.cli.common import say
from careful.cli.local import Local, local
from careful.control.instance import exporter as figures
from careful.render.instance.metrics import metrics_text, serve

_PORT = 9977


def _address(_: click.Context, __: click.Parameter, value: str) -> tuple[str, int]:
    host, colon, port = value.rpartition(":")
    if not (colon and host and port.isdecimal() and 0 < int(port) < 65536):
        raise click.BadParameter(f"{value!r} is not HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)


@command(
    examples=[
        ("carefulctl exporter", f"http://127.0.0.1:{_PORT}/metrics, until Ctrl-C"),
        ("carefulctl exporter --once", "print them once, for a collector of text files"),
    ],
    topics=("metrics", "services"),
)
@click.argument("ifname", metavar="[IFACE]", required=False, shell_complete=complete.interface)
@option("--listen HOST:PORT", str, "Address to serve at.", f"127.0.0.1:{_PORT}", callback=_address)
@flag("--once", "Print the metrics once, and end.")
@local
def exporter(ifname: str | None, listen: tuple[str, int], once: bool, here: Local) -> None:
    """Serve metrics to Prometheus over HTTP, until Ctrl-C.

    The metrics of each carefuld are traffic, losses, the use of each export, and a histogram of how
    long operations took. There is no password: everyone who can reach the address can read the
    names of peers and exports. Only root sees XDP's counters and the latencies of messages.
    """

    def look() -> list[figures.Seen]:
        return figures.look(ifname, here.instance, here.settings)

    if once:
        say(metrics_text(look), nl=False)
    else:
        host, port = listen
        shown = f"[{host}]" if ":" in host else host
        text = f"serves http://{shown}:{port}/metrics until Ctrl-C"
        serve(look, host, port, lambda: say(text, err=True))
