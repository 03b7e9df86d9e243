"""`carefulctl verify` and `partials`: what is there, compared and cleared away."""

from __future__ import annotations

from pathlib import Path

import click

from careful.address import is_remote, split_remote
from careful.cli.common import shared, show
from careful.cli.complete import remote_path
from careful.cli.params import BYTES
from careful.cli.running import run
from careful.cli.transfer_options import timeout
from careful.control import config, remote
from careful.report import files as report
from careful.transfer import session
from careful.transfer.partials import find_local


@click.command()
@click.argument("source", metavar="HOST:PATH", shell_complete=remote_path)
@click.argument("target", metavar="LOCAL")
@click.option("-r", "--recursive", is_flag=True, help="Directories, too.")
@click.option(
    "--block-bytes",
    type=BYTES,
    default=1 << 20,
    metavar="N",
    help="What one digest covers, 4KiB to 1GiB  [default: 1MiB].",
)
@timeout
@shared
def verify(
    source: str,
    target: str,
    recursive: bool,
    block_bytes: int,
    timeout_s: float,
    instance: str | None,
    config_path: Path | None,
    as_json: bool,
) -> None:
    """Compare a host's file or tree with LOCAL; nothing but digests (XXH3) crosses.

    Names, sizes and contents count; of a block device, as much as the file has. Exit status
    0: equal; 1: it could not be compared; 3: not equal, each difference named.
    """
    if not 4096 <= block_bytes <= 1 << 30:
        raise click.UsageError("--block-bytes: from 4KiB to 1GiB")
    host, path = split_remote(source)
    route, effect = remote.find(host, instance, config.load(config_path), timeout_s)
    found = run(route, lambda peer: session.verify(peer, path, target, recursive, block_bytes))
    inputs = {"source": source, "target": target, "block_bytes": block_bytes}
    figures = {**effect.as_dict(), **report.verified_figures(found)}
    show(as_json, "verify", inputs, figures, report.verified(found))
    if found.differences:
        click.get_current_context().exit(3)


@click.command()
@click.argument("where", metavar="DIRECTORY | HOST:[PATH]", default=".", shell_complete=remote_path)
@click.option("--clean", is_flag=True, help="Remove those that no transfer is using.")
@timeout
@shared
def partials(
    where: str,
    clean: bool,
    timeout_s: float,
    instance: str | None,
    config_path: Path | None,
    as_json: bool,
) -> None:
    """List what interrupted transfers left below a directory, here or on a host.

    Exit status 3: something could not be removed, or a directory not be read; each is named.
    """
    figures = {}
    if is_remote(where):
        host, path = split_remote(where)
        route, effect = remote.find(host, instance, config.load(config_path), timeout_s)
        found = run(route, lambda peer: session.partials(peer, path, clean))
        figures = effect.as_dict()
    else:
        found = find_local(where, clean)
    figures["partials"] = [report.partial_figures(one) for one in found]
    show(as_json, "partials", {"where": where, "clean": clean}, figures, report.partials(found))
    if any(one.is_failure for one in found):
        click.get_current_context().exit(3)
