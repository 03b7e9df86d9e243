"""`carefulctl ls`, `get` and `put`: the files that peers export."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path, PurePath

import click

from careful import jsonout
from careful.address import is_remote
from careful.cli.command import Given, command, flag
from careful.cli.common import is_json, say, say_all, show
from careful.cli.complete import remote_path
from careful.cli.exit_status import Exit
from careful.cli.files.transfer_options import (
    TransferCommand,
    options_of,
    reads_again,
    span_of,
    timeout,
    transfer_options,
)
from careful.cli.local import Local, shared
from careful.cli.params import host_path
from careful.cli.running import Outlasting, run
from careful.control.instance import remote
from careful.control.options import config
from careful.errors import CarefulError
from careful.render.files import listing
from careful.render.files import transfer as shown
from careful.render.files.progress import Lines
from careful.render.files.watching import watch
from careful.render.tables import folded_lines
from careful.transfer.protocol.block import BlockClient
from careful.transfer.result import Result
from careful.transfer.run import session
from careful.transfer.stream.local_end import STDIO
from careful.transfer.tree.wildcards import matching
from careful.units import shown_time


def move(
    fetch: bool,
    ends: tuple[str, Sequence[str], str],
    given: Given,
    sync: bool = False,
    **words: object,
) -> None:
    """Moves the files and prints the result. Exits with 1 if all failed, and with 3 if some failed
    or `sync` left anything different.

    Args:
        fetch: whether the sources are on the host.
        ends: the host; the sources; the target. Paths at the host are without HOST:.
        given: the options.
        sync: whether the target must become equal. Then a file that is left alone because it is
            newer there counts as failed, and nothing is printed if nothing was to do.
        words: the words of the command line, for JSON.
    """
    host, sources, target = ends
    recursive = given["recursive"] or given["archive"]
    settings = config.load(given["config_path"])
    options, span = options_of(given, recursive, settings), span_of(given, len(sources))
    route, effect = remote.find(host, given["instance"], settings, given["timeout_s"])
    as_json, is_out = is_json(), fetch and target == "-"  # the file goes to stdout
    names = partial(say, err=as_json or is_out) if given["verbose"] else None
    # Data from or to a pipe cannot be repeated.
    patience_s = 0 if STDIO in (*sources, target) else given["outlast_s"]
    patience = Outlasting(patience_s, reads_again())

    async def work(peer: BlockClient) -> Result:
        patience.begun = True
        if not fetch:
            return await session.put(peer, sources, target, recursive, options, progress, span)
        found = await matching(peer, sources)
        return await session.get(peer, found, target, recursive, options, progress, span)

    def wait_for_host(error: CarefulError, progress: Lines) -> None:
        """Waits until the host can be reached again."""
        nonlocal route, effect, options
        is_way = False
        while True:
            is_first = patience.wait(error, progress.has_moved, is_way)
            if is_first:
                limit = shown_time(patience.patience_s * 1e6)
                why = str(error).partition(";")[0]
                progress.note(f"{why}; continues if the host is back within {limit}")
            if is_first or progress.has_begun:
                progress.again()
            try:
                route, effect = remote.find(host, given["instance"], settings, given["timeout_s"])
            except CarefulError as other:
                error, is_way = other, True
            else:
                options = options.for_retry()
                return

    shows = not given["quiet"] and not as_json
    name = PurePath(sources[0]).name or host
    name += f" and {len(sources) - 1} more" if len(sources) > 1 else ""
    with patience, watch(shows, names, given["progress_fd"], host=host, name=name) as progress:
        while True:
            try:
                report = run(route, work)
                break
            except CarefulError as error:
                wait_for_host(error, progress)
    if given["verbose"] and not given["dry_run"]:
        for name in report.deleted:
            say(f"deleted {name}", is_out or as_json)
    if as_json or not (given["quiet"] or (report.is_idle and sync and not given["dry_run"])):
        figures = {**effect.as_dict(), **shown.transfer_figures(report)} if as_json else {}
        text = shown.rehearsal(report) if given["dry_run"] else shown.summary(report)
        if as_json or text:
            show(figures, text, is_out, **words)
    if report.failures or (sync and report.newer):
        some = sync or report.files_count or report.equal or report.newer or report.links
        raise click.exceptions.Exit(Exit.PARTLY if some else Exit.FAILED)


_PAGES = ("files", "resume", "exit-status")


@click.command(
    cls=TransferCommand,
    examples=[
        ("carefulctl get h2:big .", "one file; after Ctrl-C, run it again to resume"),
        ("carefulctl get -r h2:project .", "a tree"),
        ("carefulctl get -a -u --delete h2:project .", "bring it up to date"),
        ("carefulctl get 'h2:logs/*.gz' .", "all that match"),
        ("carefulctl get -c h2:image /dev/sdb", "onto a device, only the blocks that differ"),
        ("carefulctl get h2:log - | less", "to standard output"),
        ("carefulctl get h2:big null:", "test the network without the local disk"),
    ],
    topics=_PAGES,
)
@click.argument(
    "words", nargs=-1, required=True, metavar="HOST:PATH... [LOCAL]", shell_complete=remote_path
)
@transfer_options
def get(words: tuple[str, ...], **given: object) -> None:
    """Fetch files from a host into LOCAL (default: the current directory).

    A file appears under its name once it is complete, checked and synced. An existing file is
    replaced only with -f, -u or -c. LOCAL may also be `-` (standard output), null: (discard the
    data) or a block device; HOST:null: is a source of zeros. PATH is below what HOST exports, also
    with a leading /. It may contain wildcards; quote them. With -r, PATH copies a directory under
    its name, and PATH/ copies what is in it. Symlinks are skipped without -a. Several sources need
    a LOCAL.
    """
    if len(words) > 1 and is_remote(words[-1]):
        if not any(map(is_remote, words[:-1])):
            raise click.UsageError(f"{words[0]} is local: use `carefulctl put {' '.join(words)}`")
        also = f", or `carefulctl cp {' '.join(words)}`" if len(words) == 2 else ""
        raise click.UsageError(f"several sources: name a local target ('.'){also}")
    *sources, target = words if len(words) > 1 else (*words, ".")
    parts = [host_path(source) for source in sources]
    if len({host for host, _ in parts}) > 1:
        raise click.UsageError("all sources must be on one host")
    ends = parts[0][0], [path for _, path in parts], target
    move(True, ends, given, sources=sources, target=target)


#: Options of `get` that cp and sync have, too.
LIKE_GET = (
    *("mkpath", "dry_run", "fsync", "on_loss", "rate_limit", "verbose", "quiet", "progress_fd"),
    *("timeout_s", "instance", "config_path", "json"),
)


def options_like_get(taken: Collection[str], text: Mapping[str, str]) -> list[click.Parameter]:
    """Returns the options of `get` of these names, and LIKE_GET; `text` replaces help."""
    params = [copy.copy(one) for one in get.params if one.name in (*LIKE_GET, *taken)]
    for one in params:
        if isinstance(one, click.Option):
            one.help = text.get(str(one.name), one.help)
    return params


def given_to_get(given: Given) -> Given:
    """Returns a command's options and the defaults of the other options of `get`."""
    return get.make_context("get", ["h2:"], parent=click.get_current_context()).params | given


@click.command(
    cls=TransferCommand,
    examples=[
        ("carefulctl put big h2:", "one file, into what h2 exports"),
        ("carefulctl put -r project h2:data/", "a tree"),
        ("carefulctl put -c image.raw h2:", "only the blocks that differ"),
        ("tar c . | carefulctl put - h2:all.tar", "from standard input"),
        ("carefulctl put -f --at 1GiB part h2:disk", "into an existing file or device"),
    ],
    topics=_PAGES,
)
@click.argument("sources", nargs=-1, metavar="LOCAL...", shell_complete=remote_path)
@click.argument("target", metavar="HOST:PATH", shell_complete=remote_path)
@transfer_options
def put(sources: tuple[str, ...], target: str, **given: object) -> None:
    """Send files to a host that exports a directory with :rw.

    A file appears there under its name once it is complete, checked and synced. An existing
    file is replaced only with -f, -u or -c. LOCAL may also be `-` (standard input), null:
    (zeros) or a block device; HOST:null: discards the data. With -r, LOCAL copies a directory
    under its name, and LOCAL/ copies what is in it. Symlinks are skipped without -a.
    """
    if not sources:
        raise click.UsageError(f"HOST:PATH is missing: `carefulctl put {target} HOST:`")
    if not is_remote(target) and all(map(is_remote, sources)):
        words = " ".join(["-r"] * bool(given["recursive"]) + [*sources, target])
        raise click.UsageError(f"{sources[0]} is on another host: `carefulctl get {words}`")
    if is_remote(target) and is_remote(sources[0]) and not Path(sources[0]).exists():
        text = f"{sources[0]} is on another host: `carefulctl cp {' '.join([*sources, target])}`"
        raise click.UsageError(text)
    host, path = host_path(target)
    move(False, (host, sources, path), given)


@command(
    examples=[
        ("carefulctl ls h2:", "what h2 exports"),
        ("carefulctl ls -l h2:doc", "with modes, sizes and times"),
        ("carefulctl ls -R --json h2:", "the whole tree, for a program"),
    ],
    topics=("files",),
)
@click.argument("target", metavar="HOST:[PATH]", shell_complete=remote_path)
@flag("-l --long long", "Show modes, sizes and times too.")
@flag("-R --recursive", "List the whole tree.")
@timeout
@shared
def ls(target: str, long: bool, recursive: bool, timeout_s: float, here: Local) -> None:
    """List what a host exports."""
    host, path = host_path(target)
    route, effect = here.find(host, timeout_s)
    with run(route, lambda peer: session.spooled_matching(peer, path, recursive)) as spool:
        if is_json():
            inputs = {"target": target, "recursive": recursive, "instance": here.instance}
            entries = (listing.entry(one) for page in spool.pages() for one in page)
            figures = effect.as_dict()
            say_all(chain(jsonout.pieces("ls", inputs, figures, "entries", entries), "\n"))
        else:
            lines = folded_lines(listing.lines(spool.pages(), long))
            say_all(line + "\n" for line in lines)
