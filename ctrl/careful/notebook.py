"""careful in Jupyter: status, measurements and transfers, each as a table or a bar.

    import careful.files, careful.notebook

    careful.notebook.status()
    seen = careful.notebook.blackbox("h2", seconds=5)
    seen.model.plan(8192)
    with careful.files.connect("h2") as h2:
        h2.get("big", "big", progress=careful.notebook.progress())

Jupyter shows the last value of a cell. Plan, Pipeline and BlackBox of careful.model, and the
results of get() and put(), display themselves, too. Only progress() needs IPython (the extra
`notebook`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from careful import jsonout
from careful.extras import need
from careful.html import escaped, rendered
from careful.jsonout import Json
from careful.units import counted, shown_bytes, shown_rate

if TYPE_CHECKING:
    from careful.control.options.config import Config
    from careful.files.options import Progress
    from careful.model import BlackBox
    from careful.render.tables import Parts

__all__ = ["Measured", "Shown", "blackbox", "logp", "pathchar", "progress", "status"]

#: Least time between two updates of a bar, seconds.
_EVERY_S = 0.1


class Shown:
    """Result of a command: a table in a notebook, text when printed.

    Attributes:
        figures: the same as in the command's --json.
    """

    def __init__(self, parts: Parts, figures: Json) -> None:
        self._parts, self.figures = parts, figures

    def __str__(self) -> str:
        return "\n".join(map(str, self._parts))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return rendered(self._parts)


class Measured(Shown):
    """A measurement.

    Attributes:
        found: the estimator's result, with its intervals.
    """

    def __init__(self, parts: Parts, figures: Json, found: object) -> None:
        super().__init__(parts, figures)
        self.found = found

    @cached_property
    def model(self) -> BlackBox:
        """The black box of a measurement, for plans.

        Raises:
            ValueError: it is no black box, or lacks a figure.
        """
        from careful.model import BlackBox

        return BlackBox.from_dict(self.figures)


def _settings(config: Config | Path | str | None) -> Config:
    from careful.control.options import config as files

    if isinstance(config, files.Config):
        return config
    return files.load(Path(config) if config else None)


def status(instance: str | None = None, config: Config | Path | str | None = None) -> Shown:
    """Shows what `carefulctl status -v` prints.

    Args:
        instance: its name; None: all of this machine.
        config: a configuration, or the file that holds it; by default carefulctl's.

    Raises:
        CarefulError: there is no such instance, it does not answer, or only root and its group may
            ask.
    """
    from careful.control.instance import choice, instances
    from careful.control.instance import status as state
    from careful.render.instance import status as report

    settings = _settings(config)
    found, mute = state.gather_all(choice.named_or_all(None, instance), settings)
    died = {} if instance else instances.died()
    figures = jsonout.plain({"instances": found, "died": died, "mute": mute})
    return Shown(report.parts(found, died | mute), figures)


def blackbox(
    host: str,
    *,
    instance: str | None = None,
    config: Config | Path | str | None = None,
    **options: Any,
) -> Measured:
    """Measures like `carefulctl measure blackbox`: the bottleneck, and the sum of the other stages.

    Args:
        host: as for careful.files.connect().
        instance: the carefuld of this machine.
        config: a configuration, or its file.
        options: seconds (25: begin no new round after), precision (0.01), sizes_count (16),
            min_bytes (64), max_bytes, at_bytes, background.

    Raises:
        CarefulError: careful is not up at either end, or the host does not answer.
        ValueError: an option has a bad value.
        TypeError: no such option.
    """
    from careful import measure
    from careful.control.instance import remote
    from careful.measure.outside.blackbox import Options
    from careful.render.measuring import measure as report

    given = Options(**options)
    route, effect = remote.find(host, instance, _settings(config), timeout_s=5.0)
    found = measure.blackbox(route, given)
    figures = {**effect.as_dict(), **found.figures()}
    return Measured(report.blackbox_parts(found, host), figures, found)


def pathchar(host: str, *, config: Config | Path | str | None = None, **options: Any) -> Measured:
    """Measures like `carefulctl measure pathchar --no-stages`: each hop; needs no privilege.

    Args:
        host: a name or an address.
        config: a configuration, or its file.
        options: seconds (25), precision (0.02), sizes_count (12), max_hops (30), min_bytes,
            max_bytes, timeout_s, background.

    Raises:
        CarefulError: the host is unknown, nobody answers, or probes cannot be sent.
        ValueError: an option has a bad value.
        TypeError: no such option.
    """
    from careful import measure
    from careful.measure.path.pathchar import Options
    from careful.render.measuring import measure as report

    found = measure.pathchar(_settings(config).resolve(host), Options(**options))
    return Measured(report.pathchar_parts(found, host), report.pathchar_figures(found), found)


def logp(
    host: str,
    *,
    instance: str | None = None,
    config: Config | Path | str | None = None,
    **options: Any,
) -> Measured:
    """Measures like `carefulctl measure logp`: os, or, g and L of careful's messages.

    Args:
        host: as for blackbox().
        instance: the carefuld of this machine.
        config: a configuration, or its file.
        options: seconds (20), precision (0.05), messages_max (4096).

    Raises:
        CarefulError: careful is not up at either end, or the host does not answer.
        ValueError: an option has a bad value.
        TypeError: no such option.
    """
    from careful import measure
    from careful.control.instance import remote
    from careful.measure.endpoints.logp import Options
    from careful.render.measuring import logp as report

    given = Options(**options)
    route, effect = remote.find(host, instance, _settings(config), timeout_s=5.0)
    found = measure.logp([route], given)
    figures = {**effect.as_dict(), **report.logp_figures(found)}
    return Measured(report.parts(found, host), figures, found)


def progress(clock: Callable[[], float] = time.monotonic) -> Callable[[Progress], None]:
    """Returns a bar below the cell, for `progress` of one get() or put().

    Raises:
        MissingExtraError: IPython is not installed.
    """
    need("IPython", "a bar in a notebook")
    from IPython.display import HTML, display

    began, drawn_at = clock(), float("-inf")
    handle: Any = display(HTML(""), display_id=True)

    def draw(now: Progress) -> None:
        nonlocal drawn_at
        at = clock()
        whole = (now.files_done, now.bytes_done) == (now.files_expected, now.bytes_expected)
        # Outside a notebook there is no handle.
        if handle is not None and (whole or at >= drawn_at + _EVERY_S):
            drawn_at = at
            handle.update(HTML(bar(now, at - began)))

    return draw


def bar(now: Progress, elapsed_s: float) -> str:
    """Returns a transfer's progress as HTML."""
    words = f"{shown_bytes(now.bytes_done)} of {shown_bytes(now.bytes_expected)}"
    if elapsed_s > 0:
        words += f", {shown_rate(now.bytes_done / elapsed_s)}"
    words += f", {now.files_done} of {counted(now.files_expected, 'file')} {now.name}"
    most = max(now.bytes_expected, 1)
    done = most if now.bytes_expected == 0 and now.files_done else now.bytes_done
    return f'<progress value="{done}" max="{most}"></progress> {escaped(words.rstrip())}'
