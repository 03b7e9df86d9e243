"""`carefulctl memory`: memory that other hosts lend."""

from __future__ import annotations

import errno
import mmap
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from careful.cli.command import Group
from careful.cli.common import say, shared, show
from careful.cli.params import BYTES, host_path
from careful.cli.transfer_options import timeout
from careful.errors import CarefulError, from_os
from careful.units import counted
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


def _at(text: str, name_needed: bool = True) -> tuple[str, str]:
    """Splits HOST:NAME; the name may be missing if it is not needed."""
    if name_needed:
        host, name = host_path(text)
        if not name:
            raise click.UsageError(f"{text} names no piece: write {host}:NAME")
        return host, name
    with suppress(click.UsageError):
        return host_path(text)
    return text, ""


def _connect(host: str, instance: str | None, config_path: Path | None, timeout_s: float) -> Host:
    from careful.memory import connect

    return connect(host, instance=instance, config=config_path, timeout_s=timeout_s)


_SHARE = click.option(
    "--share",
    multiple=True,
    metavar="HOST[:rw]",
    help="Another host that may read the piece, or with :rw write it too; '*' is every host. "
    "May be repeated.",
)
_OWNER = click.option(
    "--owner", default="", metavar="HOST", help="The host that made the piece, if several did."
)
_PIECE = click.argument("where", metavar="HOST:NAME")


def _sharing(share: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for one in share:
        host = one.removesuffix(":rw").removesuffix(":ro").removesuffix(":r")
        found[host] = "rw" if one.endswith(":rw") else "r"
    return found


def _command(
    name: str, example: tuple[str, str]
) -> Callable[[Callable[..., object]], click.Command]:
    """Declares a command of the group, with the options that all have."""
    return lambda function: memory.command(name, examples=[example])(timeout(shared(function)))


def _figures(info: Info) -> dict[str, object]:
    return dict(vars(info))


def _line(info: Info) -> str:
    whose = "" if info.mine else f", of {info.owner}"
    return f"{info.name}: {size(info.nbytes)}, {info.access}{whose}"


@_command("ls", ("carefulctl memory ls h2", "the pieces that this host may open"))
@click.argument("where", metavar="HOST")
def ls(
    where: str,
    timeout_s: float,
    instance: str | None,
    config_path: Path | None,
    as_json: bool,
) -> None:
    """List the pieces of memory that this host may open: its own, and those shared with it."""
    host = _connect(_at(where, False)[0], instance, config_path, timeout_s)
    found = host.list()
    text = "\n".join(map(_line, found)) or f"{host.name}: no pieces"
    figures = {"pieces": [_figures(one) for one in found]}
    show(as_json, "memory ls", {"where": where}, figures, text)


@_command("stat", ("carefulctl memory stat h2", "how much memory h2 lends"))
@click.argument("where", metavar="HOST[:NAME]")
@_OWNER
def stat(
    where: str,
    owner: str,
    timeout_s: float,
    instance: str | None,
    config_path: Path | None,
    as_json: bool,
) -> None:
    """Describe a piece, or how much memory a host lends."""
    at, name = _at(where, False)
    host = _connect(at, instance, config_path, timeout_s)
    inputs = {"where": where, "owner": owner}
    if name:
        info = host.stat(name, owner=owner)
        text = f"{_line(info)}; pages of {size(info.page_bytes)}"
        show(as_json, "memory stat", inputs, _figures(info), text)
        return
    room = host.room()
    text = (
        f"{at}: lends {size(room.nbytes)}, {size(room.free)} free; this host has "
        f"{size(room.mine)} of at most {size(room.mine_most)} in {counted(room.pieces, 'piece')} "
        f"of at most {room.pieces_most}, kept for {room.keep_s:g} s after its session"
    )
    show(as_json, "memory stat", inputs, dict(vars(room)), text)


@_command("create", ("carefulctl memory create h2:table 1GiB", "a piece of zeros"))
@_PIECE
@click.argument("nbytes", metavar="BYTES", type=BYTES)
@_SHARE
def create(
    where: str,
    nbytes: int,
    share: tuple[str, ...],
    timeout_s: float,
    instance: str | None,
    config_path: Path | None,
    as_json: bool,
) -> None:
    """Make a piece of memory at a host; it is full of zeros."""
    at, name = _at(where)
    if nbytes < 1:
        raise click.UsageError("a piece has at least 1 byte")
    host = _connect(at, instance, config_path, timeout_s)
    with host.create(name, nbytes, share=_sharing(share)) as made:
        inputs = {"where": where, "nbytes": nbytes, "share": share}
        show(as_json, "memory create", inputs, _figures(made.info), _line(made.info))


@_command("rm", ("carefulctl memory rm h2:table", "give the memory back"))
@_PIECE
def rm(
    where: str,
    timeout_s: float,
    instance: str | None,
    config_path: Path | None,
    as_json: bool,
) -> None:
    """Free a piece of this host; programs that have it open lose it."""
    at, name = _at(where)
    _connect(at, instance, config_path, timeout_s).delete(name)
    show(as_json, "memory rm", {"where": where}, {}, f"{where}: is free")


def _moved(piece: Piece, step: Callable[[int, int], object]) -> None:
    for at in range(0, piece.nbytes, _STEP):
        step(at, min(_STEP, piece.nbytes - at))


@_command("put", ("carefulctl memory put image h2:image", "a file's bytes into a new piece"))
@click.argument("source", metavar="FILE", type=click.Path(path_type=Path))
@_PIECE
@_SHARE
def put(
    source: Path,
    where: str,
    share: tuple[str, ...],
    timeout_s: float,
    instance: str | None,
    config_path: Path | None,
    as_json: bool,
) -> None:
    """Copy a file into a new piece of memory.

    If the copy fails, the piece is removed again.
    """
    at, name = _at(where)
    try:
        file = source.open("rb")
        nbytes = file.seek(0, 2)
        if not nbytes:
            raise CarefulError(errno.EINVAL, "is empty: a piece has at least 1 byte", str(source))
        data = mmap.mmap(file.fileno(), nbytes, prot=mmap.PROT_READ)
    except OSError as error:
        raise from_os(error, str(source)) from None
    host = _connect(at, instance, config_path, timeout_s)
    with (
        file,
        data,
        memoryview(data) as view,
        host.create(name, nbytes, share=_sharing(share)) as piece,
    ):
        try:
            _moved(piece, lambda at, n: piece.write(view[at : at + n], at))
        except BaseException:
            with suppress(CarefulError):
                host.delete(name)
            raise
        inputs = {"source": str(source), "where": where, "share": share}
        show(as_json, "memory put", inputs, _figures(piece.info), _line(piece.info))


@_command("serve", ("carefulctl memory serve h2:vm /run/vm.sock", "restore machines from a piece"))
@_PIECE
@click.argument("path", metavar="SOCKET", type=click.Path(path_type=Path))
@_OWNER
def serve(
    where: str,
    path: Path,
    owner: str,
    timeout_s: float,
    instance: str | None,
    config_path: Path | None,
    as_json: bool,
) -> None:
    """Serve the memory of virtual machines that a monitor restores, until Ctrl-C.

    The monitor connects to SOCKET and hands over its userfaultfd, as Firecracker does.
    """
    from careful.memory import uffd

    del as_json  # there is no result
    at, name = _at(where)
    host = _connect(at, instance, config_path, timeout_s)
    uffd.serve(host, name, owner, path, say)


@_command("get", ("carefulctl memory get h2:image copy", "a piece's bytes into a file"))
@_PIECE
@click.argument("target", metavar="FILE", type=click.Path(path_type=Path))
@_OWNER
def get(
    where: str,
    target: Path,
    owner: str,
    timeout_s: float,
    instance: str | None,
    config_path: Path | None,
    as_json: bool,
) -> None:
    """Copy a piece of memory into a file, which is replaced if it exists."""
    at, name = _at(where)
    host = _connect(at, instance, config_path, timeout_s)
    with host.open(name, owner=owner) as piece:
        try:
            with target.open("wb") as file:
                _moved(piece, lambda at, n: file.write(piece.read(at, n)))
        except CarefulError:
            raise
        except OSError as error:
            raise from_os(error, str(target)) from None
        inputs = {"where": where, "target": str(target), "owner": owner}
        show(as_json, "memory get", inputs, _figures(piece.info), _line(piece.info))
