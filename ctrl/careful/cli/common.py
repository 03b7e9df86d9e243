"""Options and output that the commands about running instances share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from careful.cli.params import OUTPUT
from careful.report.jsonout import document, write

_F = TypeVar("_F", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
instance_option = click.option(
    "--instance",
    envvar="CAREFUL_INSTANCE",
    metavar="NAME",
    help="Which carefuld  [env: CAREFUL_INSTANCE; default: the interface's name, or the only one].",
)
config_option = click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Configuration  [env: CAREFUL_CONFIG; default: /etc/careful.toml, then "
    "~/.config/careful/careful.toml].",
)

output_option = click.option(
    "-o", "--output", type=OUTPUT, metavar="FILE", help="Write the JSON object there, too."
)


def shared(command: _F) -> _F:
    """--instance, --config and --json."""
    return instance_option(config_option(json_option(command)))


def measured(command: _F) -> _F:
    """The same and --output: of commands whose results are worth keeping."""
    return shared(output_option(command))


def show(
    as_json: bool,
    name: str,
    inputs: dict[str, Any],
    figures: dict[str, Any],
    text: str,
    err: bool = False,
    output: Path | None = None,
) -> None:
    """Print a result: one JSON object, or text for people; on standard error with `err`.

    output: where the JSON object is written to, whatever is printed.
    """
    made = document(name, inputs, figures) if as_json or output else ""
    click.echo(made if as_json else text, err=err)
    if output:
        write(output, made + "\n")
