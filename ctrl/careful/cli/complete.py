"""Shell completion of HOST:PATH, hosts, interfaces and instances.

A host that does not answer within a second or two completes nothing.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable

import click
from click.shell_completion import CompletionItem

#: Time that the shell waits while somebody types, seconds.
_TIMEOUT_S = 1.5


def _names(host: str, path: str) -> list[str]:
    """Returns the paths that begin with `path`; directories end with a slash."""
    from careful.cli.running import run
    from careful.control.instance import remote
    from careful.control.options import config
    from careful.transfer.run import session

    folder, slash, _ = path.rpartition("/")
    route, _ = remote.find(host, None, config.load(None), _TIMEOUT_S)
    found = run(route, lambda remote: session.listing(remote, folder, recursive=False))
    # A line feed would begin another answer to the shell; control characters cannot be typed.
    names = (
        entry.name + ("/" if entry.attr.is_dir else "")
        for entry in found
        if entry.name.isprintable()
    )
    return sorted(name for name in (folder + slash + one for one in names) if name.startswith(path))


def _begin(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]


def _nodes() -> list[str]:
    from careful.control.options import config

    try:
        return list(config.load(None).nodes)
    except (OSError, ValueError):
        return []


def host(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Completes HOST."""
    return _begin(_nodes(), incomplete)


def interface(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Completes IFACE from the interfaces of this host."""
    return _begin((name for _, name in socket.if_nameindex() if name != "lo"), incomplete)


def instance(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Completes the name of a running instance."""
    from careful.control.instance import instances

    return _begin((one.name for one in instances.running()), incomplete)


def remote_path(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes HOST:PATH; a word without a colon is a host or a local file.

    The host is the last word of `put`, and the first of other commands. bash splits a word at its
    colons, and wants only the part after the last colon.
    """
    from careful.address import is_remote, split_remote  # the C side

    before = [*(ctx.params.get("words") or ()), *(ctx.params.get("sources") or ()), *ctx.args]
    apart = ""
    word = incomplete
    if incomplete == ":" and before:
        apart = word = f"{before[-1]}:"
    elif len(before) > 1 and before[-1] == ":":
        apart = f"{before[-2]}:"
        word = apart + incomplete
    if not is_remote(word):
        hosts = _begin((f"{name}:" for name in _nodes()), incomplete)
        expected = bool(incomplete) or bool(before) == (ctx.info_name == "put")
        return hosts if hosts and expected else [CompletionItem(incomplete, type="file")]
    host, path = split_remote(word)
    try:
        names = _names(host, path)
    except (OSError, ValueError):  # an error message would disturb the line that is being typed
        return []
    whole = word[: len(word) - len(path)]
    return [CompletionItem(name if apart else whole + name) for name in names]
