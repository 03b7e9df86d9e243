"""`carefulctl config`: checks the configuration file."""

from __future__ import annotations

from pathlib import Path

import click

from careful.cli.command import group
from careful.cli.common import json_option, show
from careful.cli.exit_status import Exit
from careful.control.checks import option_checks
from careful.control.options import config as settings
from careful.render.instance import doctor as report


@group(
    "config",
    examples=[("carefulctl config check", "the files that commands read")],
    topics=("careful.toml",),
)
def config_group() -> None:
    """Look at the configuration file."""


@config_group.command(
    "check",
    examples=[
        ("carefulctl config check", "the files that commands read"),
        ("carefulctl config check new.toml", "before it takes the old one's place"),
    ],
    topics=("careful.toml",),
)
@click.argument("file", type=click.Path(path_type=Path), required=False)
@json_option
def check(file: Path | None) -> None:
    """Read FILE as every command does, and say what is wrong with it.

    An error names the line of a key or table that does not exist, or the table that `up` would
    refuse on this host. `up` refuses an export, host or group that does not exist, or a key that is
    missing. Without FILE the command reads the file that $CAREFUL_CONFIG names, else
    /etc/careful.toml and ~/.config/careful/careful.toml. The exit status is 1 if something is
    wrong.
    """
    found = settings.load(file)
    refused = option_checks.refused(found)
    figures = {
        "files": [str(one) for one in found.paths],
        "nodes": found.nodes,
        "instances": sorted(found.instances),
        "refused": {table: [vars(one) for one in all_of] for table, all_of in refused.items()},
    }
    show(figures, report.checked(found, refused))
    if refused:
        raise click.exceptions.Exit(Exit.FAILED)
