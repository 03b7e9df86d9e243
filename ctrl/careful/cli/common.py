"""Options and output that the commands about running instances share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import TypeVar

import click

from careful.cli import complete
from careful.cli.command import flag, option
from careful.cli.params import OUTPUT, PLOT
from careful.errors import from_os
from careful.jsonout import document, write
from careful.render.tables import folded

#: Texts that say_all() prints at a time.
_AT_A_TIME = 512
#: The file of --output, in a context's meta.
_OUTPUT = "careful.cli.common.output"
_T = TypeVar("_T")


def _note_json(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(dict)["json"] = _name(ctx)


def _note_output(ctx: click.Context, _: click.Parameter, value: Path | None) -> None:
    ctx.meta[_OUTPUT] = value


json_option = flag(
    "--json",
    "Print one JSON object, also for an error.",
    is_eager=True,
    expose_value=False,
    callback=_note_json,
)
instance_option = option(
    "--instance NAME",
    str,
    "Instance of carefuld.  [env var: CAREFUL_INSTANCE; default: the interface's, or the only one]",
    envvar="CAREFUL_INSTANCE",
    shell_complete=complete.instance,
)
config_option = option(
    "--config config_path FILE",
    click.Path(path_type=Path),
    "Configuration file.  [env var: CAREFUL_CONFIG; default: /etc/careful.toml, then "
    "~/.config/careful/careful.toml]",
)

output_option = option(
    "-o --output FILE",
    OUTPUT,
    "Also write the JSON object to FILE.",
    expose_value=False,
    callback=_note_output,
)
plot_option = option("--plot plot_path", PLOT, "Draw the result to a .png or .svg file.")


def options_of(kind: Callable[..., _T], given: Mapping[str, object]) -> _T:
    """Makes a measurement's options from its command's options; None means the default."""
    return kind(**{name: value for name, value in given.items() if value is not None})


def say(text: str, err: bool = False, nl: bool = True) -> None:
    """Prints a text. Raises BrokenPipeError if the reader is gone, else CarefulError."""
    try:
        click.echo(text, err=err, nl=nl)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise from_os(error, "standard output") from None


def say_folded(text: str, err: bool = False) -> None:
    """Prints a text for people, folded at the width of the terminal; raises like say()."""
    say(folded(text, err=err), err)


def say_all(texts: Iterable[str]) -> None:
    """Prints texts in order, many at a time; raises like say()."""
    texts = iter(texts)
    while part := "".join(islice(texts, _AT_A_TIME)):
        say(part, nl=False)


def _name(ctx: click.Context) -> str:
    return ctx.command_path.partition(" ")[2]


def is_json() -> bool:
    """Reports whether the command that runs has --json."""
    return "json" in (click.get_current_context().find_object(dict) or {})


def result(figures: Mapping[str, object], **inputs: object) -> str:
    """Returns a result of the command that runs as one JSON object, which echoes its words.

    inputs: echoed too, or instead of the words.
    """
    ctx = click.get_current_context()
    return document(_name(ctx), ctx.params | inputs, figures)


def show(figures: Mapping[str, object], text: str, err: bool = False, /, **inputs: object) -> None:
    """Prints a result of the command that runs as text, or with --json like result().

    Also writes the file of --output. err: print on standard error.
    """
    output = click.get_current_context().meta.get(_OUTPUT)
    made = result(figures, **inputs) if is_json() or output else ""
    say(made if is_json() else folded(text, err=err), err)
    if output:
        write(output, made + "\n")
