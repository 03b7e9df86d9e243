"""`carefulctl memory`: memory that other hosts lend."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING

import click

from careful.cli.command import Group, option
from careful.cli.common import say, show
from careful.cli.files.transfer_options import timeout
from careful.cli.local import Local, shared
from careful.cli.params import BYTES, host_path
from careful.errors import CarefulError, about
from careful.units import counted, shown_time
from careful.units import shown_bytes as size

if TYPE_CHECKING:
    from careful.memory import Host, Info, Piece

#: Bytes of a file that are moved at a time.
_STEP = 16 << 20


@click.group(
    cls=Group,
    examples=[
        ("carefulctl memory ls h2", "the pieces that this host may open at h2"),
        ("carefulctl memory put image h2:image --share '*'", "publish a file to all hosts"),
        ("carefulctl memory get h2:image copy", "read it back, on any of them"),
        ("carefulctl memory rm h2:image", "give the memory back"),
    ],
    topics=("memory",),
)
def memory() -> None:
    """Create, list, fill and read memory that other hosts lend (`up --lend`)."""


def _at(text: str, name_needed: bool) -> tuple[str, str]:
    """Splits HOST:NAME; NAME may be missing unless name_needed."""
    try:
        host, name = host_path(text)
    except click.UsageError:
        if name_needed:
            raise
        return text, ""
    if name_needed and not name:
        raise click.UsageError(f"{text} does not name a piece of memory: write {host}:NAME")
    return host, name


_SHARE = option(
    "--share HOST[:rw]",
    str,
    "Another host that may read the piece, or with :rw write it too; '*' is every host. "
    "May be repeated.",
    multiple=True,
)
_OWNER = option(
    "--owner HOST", str, "The host that made the piece, if several did.", "", show_default=False
)
_PIECE = click.argument("where", metavar="HOST:NAME")

#: The result of a command: its figures, and its text.
_Found = tuple[dict[str, object], str]


def _sharing(share: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for one in share:
        host = one.removesuffix(":rw").removesuffix(":ro").removesuffix(":r")
        found[host] = "rw" if one.endswith(":rw") else "r"
    return found


def _command(
    name: str, example: tuple[str, str], name_needed: bool = True
) -> Callable[[Callable[..., _Found]], click.Command]:
    """Declares a command of the group. Its function gets the host, the piece's name, and its own
    arguments.
    """

    def declare(function: Callable[..., _Found]) -> click.Command:
        @wraps(function)
        def call(where: str, timeout_s: float, here: Local, **own: object) -> None:
            from careful.memory import connect

            at, piece = _at(where, name_needed)
            instance, path = here.instance, here.config_path
            host = connect(at, instance=instance, config=path, timeout_s=timeout_s)
            show(*function(host, piece, **own))

        return memory.command(name, examples=[example])(timeout(shared(call)))

    return declare


def _line(info: Info) -> str:
    whose = "" if info.mine else f", of {info.owner}"
    return f"{info.name}: {size(info.nbytes)}, {info.access}{whose}"


def _described(info: Info) -> _Found:
    return dict(vars(info)), _line(info)


@_command("ls", ("carefulctl memory ls h2", "the pieces that this host may open"), False)
@click.argument("where", metavar="HOST")
def ls(host: Host, _: str) -> _Found:
    """List the pieces of memory that this host may open: its own, and those shared with it."""
    found = host.list()
    text = "\n".join(map(_line, found)) or f"{host.name}: no pieces"
    return {"pieces": [dict(vars(one)) for one in found]}, text


@_command("stat", ("carefulctl memory stat h2", "how much memory h2 lends"), False)
@click.argument("where", metavar="HOST[:NAME]")
@_OWNER
def stat(host: Host, name: str, owner: str) -> _Found:
    """Describe a piece, or how much memory a host lends."""
    if name:
        figures, text = _described(host.stat(name, owner=owner))
        return figures, f"{text}; pages of {size(int(str(figures['page_bytes'])))}"
    room = host.room()
    text = (
        f"{host.name}: lends {size(room.nbytes)}, {size(room.free)} free; this host has "
        f"{size(room.mine)} in {counted(room.pieces, 'piece')} (at most {size(room.mine_most)} in "
        f"{room.pieces_most}); pieces stay for {shown_time(room.keep_s * 1e6)} after its session"
    )
    return dict(vars(room)), text


@_command("create", ("carefulctl memory create h2:table 1GiB", "a piece of zeros"))
@_PIECE
@click.argument("nbytes", metavar="BYTES", type=BYTES)
@_SHARE
def create(host: Host, name: str, nbytes: int, share: tuple[str, ...]) -> _Found:
    """Make a piece of memory at a host; it is full of zeros."""
    if nbytes < 1:
        raise click.UsageError("a piece has at least 1 byte")
    with host.create(name, nbytes, share=_sharing(share)) as made:
        return _described(made.info)


@_command("rm", ("carefulctl memory rm h2:table", "give the memory back"))
@_PIECE
def rm(host: Host, name: str) -> _Found:
    """Free a piece of this host; programs that have it open lose it."""
    host.delete(name)
    return {}, f"{host.name}:{name}: is free"


def _in_steps(piece: Piece, step: Callable[[int, int], object]) -> None:
    for at in range(0, piece.nbytes, _STEP):
        step(at, min(_STEP, piece.nbytes - at))


@_command("put", ("carefulctl memory put image h2:image", "a file's bytes into a new piece"))
@click.argument("source", metavar="FILE", type=click.Path(path_type=Path))
@_PIECE
@_SHARE
def put(host: Host, name: str, source: Path, share: tuple[str, ...]) -> _Found:
    """Copy a file into a new piece of memory.

    If the copy fails, the piece is removed again.
    """
    with about(str(source)):
        file = source.open("rb")
        nbytes = file.seek(0, 2)
        if not nbytes:
            raise CarefulError(errno.EINVAL, "is empty: a piece has at least 1 byte", str(source))
        data = mmap.mmap(file.fileno(), nbytes, prot=mmap.PROT_READ)
    with (
        file,
        data,
        memoryview(data) as view,
        host.create(name, nbytes, share=_sharing(share)) as piece,
    ):
        try:
            _in_steps(piece, lambda at, n: piece.write(view[at : at + n], at))
        except BaseException:
            with suppress(CarefulError):
                host.delete(name)
            raise
        return _described(piece.info)


@_command("serve", ("carefulctl memory serve h2:vm /run/vm.sock", "restore machines from a piece"))
@_PIECE
@click.argument("path", metavar="SOCKET", type=click.Path(path_type=Path))
@_OWNER
def serve(host: Host, name: str, path: Path, owner: str) -> _Found:
    """Serve the memory of virtual machines that a monitor restores, until Ctrl-C.

    The monitor connects to SOCKET and hands over its userfaultfd, as Firecracker does.
    """
    from careful.memory import uffd

    uffd.serve(host, name, owner, path, say)


@_command("get", ("carefulctl memory get h2:image copy", "a piece's bytes into a file"))
@_PIECE
@click.argument("target", metavar="FILE", type=click.Path(path_type=Path))
@_OWNER
def get(host: Host, name: str, target: Path, owner: str) -> _Found:
    """Copy a piece of memory into a file. An existing file is replaced when all bytes are there."""
    from careful.transfer.file.partial_file import Partial

    with host.open(name, owner=owner) as piece:
        part = Partial(str(target), piece.nbytes, 0o666, replace=True)
        try:
            with os.fdopen(part.fd, "wb", closefd=False) as file, about(str(target)):
                _in_steps(piece, lambda at, n: file.write(piece.read(at, n)))
            part.commit(sync=False)
        finally:
            part.discard()
        return _described(piece.info)
