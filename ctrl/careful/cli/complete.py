"""Completion of HOST:PATH in the shell: what the host exports there."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from careful.address import is_remote, split_remote

#: A shell waits for this while somebody types, seconds.
_TIMEOUT_S = 1.5


def _names(host: str, path: str) -> list[str]:
    """The paths that begin with `path`; directories with a slash."""
    from careful.cli.running import run
    from careful.control import config, remote
    from careful.transfer import session

    folder, slash, _ = path.rpartition("/")
    route, _ = remote.find(host, None, config.load(None), _TIMEOUT_S)
    found = run(route, lambda remote: session.listing(remote, folder, recursive=False))
    names = (entry.name + ("/" if entry.attr.is_dir else "") for entry in found)
    return sorted(name for name in (folder + slash + one for one in names) if name.startswith(path))


def remote_path(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete HOST:PATH; anything else is a local file.

    bash takes a word apart at its colons, and wants what comes after the last one.
    """
    before = [*(ctx.params.get("words") or ()), *(ctx.params.get("sources") or ()), *ctx.args]
    apart = ""
    word = incomplete
    if incomplete == ":" and before:
        apart = word = f"{before[-1]}:"
    elif len(before) > 1 and before[-1] == ":":
        apart = f"{before[-2]}:"
        word = apart + incomplete
    if not is_remote(word):
        return [CompletionItem(incomplete, type="file")]
    host, path = split_remote(word)
    try:
        names = _names(host, path)
    except (OSError, ValueError):  # nobody to tell: the line that is being typed stays as it is
        return []
    whole = word[: len(word) - len(path)]
    return [CompletionItem(name if apart else whole + name) for name in names]
