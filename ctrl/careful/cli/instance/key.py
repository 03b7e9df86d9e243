"""`carefulctl key`: the key of this host, and the keys that it trusts."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path

import click

from careful.cli.command import Group, flag, option
from careful.cli.common import config_option, json_option, show
from careful.control.options import config, keys
from careful.errors import CarefulError
from careful.render.instance import keys as report

#: Figures and text.
_Found = tuple[dict[str, object], str]


def _shown(command: Callable[..., _Found]) -> Callable[..., None]:
    """Adds --keys, --config and --json. The function gets the keys, the configuration and its own
    options, and returns figures and text.
    """

    @wraps(command)
    def call(directory: Path | None, config_path: Path | None, **own: object) -> None:
        settings = config.load(config_path)
        said = settings.up.keys
        said = None if said == keys.NONE else said
        place = keys.Keys(directory or (Path(said) if said else keys.DEFAULT))
        show(*command(place, settings, **own), keys=place.directory)

    where = option(
        "--keys directory DIR",
        click.Path(path_type=Path),
        f"Directory of the keys.  [default: `keys` of [up] in careful.toml, else {keys.DEFAULT}]",
    )
    return where(config_option(json_option(call)))


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
@flag("--later", "Make a second key, for a later --replace.")
@flag("--replace", "Use the second key instead of the present one.")
@flag("--cluster", "Make the key that all hosts share, and print where it is.")
@_shown
def new(place: keys.Keys, _: config.Config, later: bool, replace: bool, cluster: bool) -> _Found:
    """Make the private key of this host, and print the public one.

    With --cluster, make the key that all hosts share. It is mixed into every handshake, so a host
    without it gets no session. Copy its file to each host, readable by root only, while careful is
    down everywhere.
    """
    if later and (replace or cluster):
        raise click.UsageError("--later cannot be combined with --replace or --cluster")
    if cluster:
        path = str(place.new_cluster(replace))
        return {"path": path}, path
    public = place.new(later, replace)
    return {"key": public}, public


@key.command("show", examples=[("carefulctl key show", "for `key trust` on the other hosts")])
@_shown
def show_key(place: keys.Keys, _: config.Config) -> _Found:
    """Print the public key of this host."""
    public = place.public()
    if public is None:
        path = str(place.directory / "private")
        raise CarefulError(errno.ENOENT, "this host has no key: carefulctl key new", path)
    return {"key": public, "next": place.public("next")}, public


@key.command("trust", examples=[("carefulctl key trust h2 KEY", "KEY as h2's `key show` prints")])
@click.argument("host", metavar="HOST")
@click.argument("public", metavar="KEY")
@_shown
def trust(place: keys.Keys, settings: config.Config, host: str, public: str) -> _Found:
    """Trust KEY at the address of HOST.

    HOST is resolved to its address now. Several keys can be trusted at one address while its host
    changes keys.
    """
    one = place.trust(settings.resolve(host).ip, public, host)
    return {"trusted": report.key_figures([one])}, f"trusted at {one.address}: {one.key}"


@key.command("list", examples=[("carefulctl key list", "the latest first")])
@_shown
def list_keys(place: keys.Keys, _: config.Config) -> _Found:
    """List whose keys are trusted."""
    found = place.trusted()
    return {"trusted": report.key_figures(found)}, report.trusted(found)


@key.command("remove", examples=[("carefulctl key remove h2", "its session ends")])
@click.argument("which", metavar="HOST|KEY")
@_shown
def remove(place: keys.Keys, settings: config.Config, which: str) -> _Found:
    """Stop trusting a host or a key; its sessions end."""
    names = [which]
    with suppress(CarefulError):  # a key, or a host whose name no longer resolves
        names.append(settings.resolve(which).ip)
    gone = place.remove(*names)
    text = "\n".join(f"no longer trusted at {one.address}: {one.key}" for one in gone)
    return {"removed": report.key_figures(gone)}, text
