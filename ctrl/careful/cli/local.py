"""The carefuld of this host that a command uses, and its configuration: --instance, --config.

doctor uses this module, and runs without the C library. So functions import what needs it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING

from careful.cli.common import config_option, instance_option, json_option, output_option

if TYPE_CHECKING:
    from careful.control.instance.records import Effect
    from careful.control.options.config import Config
    from careful.daemon.route import Route

_Command = Callable[..., object]


@dataclass(frozen=True)
class Local:
    """Which carefuld, and which configuration file; None: by default."""

    instance: str | None
    config_path: Path | None

    @cached_property
    def settings(self) -> Config:
        """Returns the configuration."""
        from careful.control.options import config

        return config.load(self.config_path)

    def ifname(self, given: str | None) -> str:
        """Returns the interface, by default that of the only carefuld."""
        from careful.control.instance import choice

        return given or choice.choose(self.instance).ifname

    def find(self, host: str, timeout_s: float = 5.0) -> tuple[Route, Effect]:
        """Finds the way to a host, like control.instance.remote.find()."""
        from careful.control.instance import remote

        return remote.find(host, self.instance, self.settings, timeout_s)


def local(command: _Command) -> _Command:
    """Adds --instance and --config, as the argument `here`."""

    @wraps(command)
    def call(
        *args: object, instance: str | None, config_path: Path | None, **own: object
    ) -> object:
        return command(*args, here=Local(instance, config_path), **own)

    return instance_option(config_option(call))


def shared(command: _Command) -> _Command:
    """Adds the options of local(), and --json."""
    return local(json_option(command))


def measured(command: _Command) -> _Command:
    """Adds shared() and --output, for commands whose results are worth keeping."""
    return shared(output_option(command))
