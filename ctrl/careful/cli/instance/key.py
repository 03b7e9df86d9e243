"""`carefulctl key`: the key of this host, and the keys that it trusts."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import click

from careful.cli.command import Group
from careful.cli.common import config_option, json_option, show
from careful.control.options import config, keys
from careful.errors import CarefulError
from careful.render.instance import keys as report

_F = TypeVar("_F", bound=Callable[..., object])


def _where(command: _F) -> _F:
    option = click.option(
        "--keys",
        "directory",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Directory of the keys.  [default: `keys` of [up] in careful.toml, else "
        f"{keys.DEFAULT}]",
    )
    return option(config_option(json_option(command)))


def _keys(directory: Path | None, config_path: Path | None) -> keys.Keys:
    said = config.load(config_path).up.keys
    said = None if said == keys.NONE else said
    return keys.Keys(directory or (Path(said) if said else keys.DEFAULT))


@click.group(
    cls=Group,
    examples=[
        ("carefulctl key new", "on each host: make its key, and print the public one"),
        ("carefulctl key trust h2 KEY", "trust the host at h2's address that has this key"),
        ("carefulctl key remove h2", "trust it no longer; its session ends"),
    ],
    topics=("keys", "security"),
)
def key() -> None:
    """Make this host's key, and choose whose keys to trust.

    If a host has a key when `up` runs, its sessions need keys: a peer gets a session only if it
    proves the key that is trusted at its address. Trusted keys can change at any time; a running
    carefuld reads them again within a second.
    """


@key.command(
    "new",
    examples=[
        ("carefulctl key new", "the first one"),
        ("carefulctl key new --later", "make a second key, for the other hosts to trust, too"),
        ("carefulctl key new --replace", "then use the second key; no session ends"),
        ("carefulctl key new --cluster", "make a key that all hosts share: copy its file to each"),
    ],
)
@click.option("--later", is_flag=True, help="Make a second key, for a later --replace.")
@click.option("--replace", is_flag=True, help="Use the second key instead of the present one.")
@click.option(
    "--cluster", is_flag=True, help="Make the key that all hosts share, and print where it is."
)
@_where
def new(
    later: bool,
    replace: bool,
    cluster: bool,
    directory: Path | None,
    config_path: Path | None,
) -> None:
    """Make the private key of this host, and print the public one.

    With --cluster, make the key that all hosts share. It is mixed into every handshake, so a host
    without it gets no session. Copy its file to each host, readable by root only, while careful is
    down everywhere.
    """
    if later and (replace or cluster):
        raise click.UsageError("--later cannot be combined with --replace or --cluster")
    place = _keys(directory, config_path)
    if cluster:
        path = str(place.new_cluster(replace))
        show({"path": path}, path, keys=place.directory)
        return
    public = place.new(later, replace)
    show({"key": public}, public, keys=place.directory)


@key.command("show", examples=[("carefulctl key show", "for `key trust` on the other hosts")])
@_where
def show_key(directory: Path | None, config_path: Path | None) -> None:
    """Print the public key of this host."""
    place = _keys(directory, config_path)
    public = place.public()
    if public is None:
        path = str(place.directory / "private")
        raise CarefulError(errno.ENOENT, "this host has no key: carefulctl key new", path)
    show({"key": public, "next": place.public("next")}, public, keys=place.directory)


@key.command("trust", examples=[("carefulctl key trust h2 KEY", "KEY as h2's `key show` prints")])
@click.argument("host", metavar="HOST")
@click.argument("public", metavar="KEY")
@_where
def trust(host: str, public: str, directory: Path | None, config_path: Path | None) -> None:
    """Trust KEY at the address of HOST.

    HOST is resolved to its address now. Several keys can be trusted at one address while its host
    changes keys.
    """
    place = _keys(directory, config_path)
    one = place.trust(config.load(config_path).resolve(host).ip, public, host)
    figures = {"trusted": report.figures([one])}
    show(figures, f"trusted at {one.address}: {one.key}", keys=place.directory)


@key.command("list", examples=[("carefulctl key list", "the latest first")])
@_where
def list_keys(directory: Path | None, config_path: Path | None) -> None:
    """List whose keys are trusted."""
    place = _keys(directory, config_path)
    found = place.trusted()
    show({"trusted": report.figures(found)}, report.trusted(found), keys=place.directory)


@key.command("remove", examples=[("carefulctl key remove h2", "its session ends")])
@click.argument("which", metavar="HOST|KEY")
@_where
def remove(which: str, directory: Path | None, config_path: Path | None) -> None:
    """Stop trusting a host or a key; its sessions end."""
    place = _keys(directory, config_path)
    settings = config.load(config_path)
    names = [which]
    with suppress(CarefulError):  # a key, or a host whose name no longer resolves
        names.append(settings.resolve(which).ip)
    gone = place.remove(*names)
    text = "\n".join(f"no longer trusted at {one.address}: {one.key}" for one in gone)
    show({"removed": report.figures(gone)}, text, keys=place.directory)
