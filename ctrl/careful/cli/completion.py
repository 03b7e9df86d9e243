"""`carefulctl completion`: the script with which a shell completes our command lines.

Owns the script for bash, which adds no blank after `h2:` or `dir/`, and which quotes a server's
file names and never runs them. click has the others, which quote by themselves.
"""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import BashComplete, get_completion_class

from careful.cli.command import command
from careful.cli.common import say

#: Asks this program to complete; names the shell.
VARIABLE = "_CAREFULCTL_COMPLETE"
_SHELLS = ("bash", "zsh", "fish")


class _Bash(BashComplete):
    """bash, without a blank after a word that can continue."""

    source_template = """\
%(complete_func)s() {
    local IFS=$'\\n' type value
    COMPREPLY=()
    while IFS=, read -r type value; do
        case $type in
        dir) compopt -o dirnames ;;
        file) compopt -o default ;;
        *)
            [[ $value == *[:/] ]] && compopt -o nospace
            printf -v value %%q "$value" && COMPREPLY+=("$value") ;;
        esac
    done < <(COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD \\
        %(complete_var)s=bash_complete "$1")
}
complete -F %(complete_func)s %(prog_name)s
"""

    def source(self) -> str:
        """Returns the script; click's own method runs bash to find its version."""
        return self.source_template % self.source_vars()


def _ours() -> str:
    name = Path(os.environ.get("SHELL", "")).name
    return name if name in _SHELLS else _SHELLS[0]


@command(
    examples=[
        ('eval "$(carefulctl completion bash)"', "in ~/.bashrc"),
        ("carefulctl completion fish | source", "in ~/.config/fish/config.fish"),
    ]
)
@click.argument("shell", type=click.Choice(_SHELLS), default=_ours)
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a completion script for bash, zsh or fish.

    The default is your login shell. The script completes commands, options, interfaces, the
    hosts in the configuration, and paths on a host that answers at once.
    """
    kind = _Bash if shell == "bash" else get_completion_class(shell)
    assert kind is not None
    say(kind(ctx.find_root().command, {}, "carefulctl", VARIABLE).source())
