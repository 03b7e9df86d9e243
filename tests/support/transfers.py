"""Transfers as the command does them: each in a session of its own, to its end or a signal."""

from __future__ import annotations

from functools import partial
from typing import Any

from careful.cli.running import run
from careful.daemon.route import Route
from careful.transfer import session


def _run(work: Any, route: Route, *given: Any, **more: Any) -> Any:
    return run(route, lambda remote: work(remote, *given, **more))


get = partial(_run, session.get)
put = partial(_run, session.put)
listing = partial(_run, session.listing)
verify = partial(_run, session.verify)
partials = partial(_run, session.partials)
