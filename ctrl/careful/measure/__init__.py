"""Measurements of a path, each by one call, for the command and for notebooks.

A measurement takes the options of its estimator, and returns a result with an interval for each
figure. Modules are imported when they are needed, because numpy is slow to load.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from careful.address import Address
    from careful.daemon.route import Route
    from careful.measure.endpoints import logp as signatures
    from careful.measure.outside import blackbox as two_regressions
    from careful.measure.outside.blackbox_result import Result as BlackBoxResult
    from careful.measure.path import pathchar as by_hops
    from careful.measure.path.hops import Path


def pathchar(address: Address, options: by_hops.Options) -> Path:
    """Measures the hops to a host; needs no privilege.

    Raises CarefulError: too few answers, or probes cannot be sent.
    """
    from careful.measure.path.pathchar import measure

    return measure(address, options)


def blackbox(route: Route, options: two_regressions.Options) -> BlackBoxResult:
    """Measures the bottleneck and the sum of the other stages, through careful at both ends.

    Raises CarefulError: careful is not up at both ends, or the host does not answer.
    """
    from careful.measure.outside.blackbox import BlackBox
    from careful.measure.outside.undisturbed import Undisturbed
    from careful.measure.probes.exchange import ProbeSession

    with ProbeSession(route) as session:
        return BlackBox(Undisturbed(session), options).run()


def logp(routes: Sequence[Route], options: signatures.Options) -> signatures.Result:
    """Measures os, or, g and L of careful's messages to one host, or to several in turn.

    Raises CarefulError: careful is not up at both ends, or a host does not answer.
    """
    from careful.measure.endpoints.logp import LogP
    from careful.measure.probes.bursts import Session

    with Session(routes) as session:
        return LogP(session.layer(), options).run()
