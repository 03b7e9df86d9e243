"""A path from memory to file: its hops, and the stages inside the hosts where those answer.

Owns the choice between plain UDP probes, which need no privilege, and pings by way of
carefuld, which hops and hosts answer alike.
"""

from __future__ import annotations

import errno
import math

from careful.address import Address
from careful.daemon.route import Route
from careful.errors import CarefulError
from careful.measure.estimators import host_stages, pathchar
from careful.measure.estimators.hops import Path
from careful.measure.probes.ping import PingSession


def measure(
    address: Address,
    route: Route | None,
    driver: str,
    options: pathchar.Options,
    *,
    must: bool = False,
    one_clock: bool = False,
) -> tuple[Path, host_stages.Stages | None, str]:
    """Hops, and stages if there is a way to them; else why there is none.

    A host that fell silent, and a background too short for stages, cost the stages alone.

    route: to the peer by way of our carefuld; driver: of its interface; must: no stages are an
    error; one_clock: both ends are one machine. Raises CarefulError as its parts do.
    """
    if route is None:
        return pathchar.measure(address, options), None, ""
    try:
        session = PingSession(
            route.socket, route.instance, route.address, route.host, driver == "veth"
        )
    except CarefulError as error:
        if must:
            raise
        return pathchar.measure(address, options), None, str(error)
    with session:
        options = pathchar.fitting(options, session.family)
        path = pathchar.Pathchar(
            session.probe, session.mtu_bytes, options, family=session.family
        ).run()
        if not path.to_host:
            if path.segments:  # of use without the stages, even where those were asked for
                return path, None, "the host no longer answers, or not through these hops"
            text = "careful answers there, but not through the hops that were found"
            raise CarefulError(errno.EHOSTUNREACH, f"{text}: {path.why_nothing}", route.host)
        if (
            options.background
            and (needed_s := host_stages.background_s(path)) > options.seconds / 3
        ):
            text = f"in the background they take about {needed_s:.0f} s"
            return path, None, f"{text}: --time {math.ceil(3.6 * needed_s)}"
        found = host_stages.measure(
            session.ask,
            path,
            kick_runs_all=driver == "veth" and len(path.hops) == 1,
            seconds=options.seconds / 3,
            timeout_s=options.timeout_s,
            background=options.background,
            one_clock=one_clock,
        )
    return path, found, ""
