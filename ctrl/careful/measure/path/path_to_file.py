"""A path from memory to file: its hops, and the stages inside the hosts if careful answers.

Chooses between plain UDP probes, which need no privilege, and pings through carefuld, which both
hops and hosts answer.
"""

from __future__ import annotations

import errno
import math
from dataclasses import replace

from careful.address import Address
from careful.daemon.route import Route
from careful.errors import CarefulError
from careful.measure.path import host_stages, pathchar
from careful.measure.path.hops import Path
from careful.measure.probes.ping import PingSession


def measure(
    address: Address,
    route: Route | None,
    driver: str,
    options: pathchar.Options,
    *,
    required: bool = False,
    one_clock: bool = False,
) -> tuple[Path, host_stages.Stages | None, str]:
    """Measures the hops, and the stages if possible; returns the reason if not.

    If the host falls silent, or background time is too short, only the stages are left out.

    route: to the peer through our carefuld; driver: of our interface; required: raises an error if
    careful does not answer; one_clock: both ends are one machine. Raises CarefulError.
    """
    if route is None:
        return pathchar.measure(address, options), None, ""
    try:
        session = PingSession(route, driver == "veth")
    except CarefulError as error:
        if required:
            raise
        return pathchar.measure(address, options), None, str(error)
    with session:
        whole_s = options.seconds
        options = replace(
            pathchar.fitting(options, session.family),
            resolution_us=host_stages.RESOLUTION_US,
            seconds=whole_s * (1 if options.background else 2 / 3),
        )
        path = pathchar.Pathchar(
            session.probe, session.mtu_bytes, options, family=session.family
        ).run()
        if not path.to_host:
            if path.segments:  # hops are useful without the stages, even if stages were required
                return path, None, "the host no longer answers through these hops"
            text = "careful answers, but not through the measured hops"
            raise CarefulError(errno.EHOSTUNREACH, f"{text}: {path.why_nothing}", route.host)
        if (
            options.background
            and (needed_s := host_stages.background_s(path)) > options.seconds / 3
        ):
            text = f"in the background the stages take about {needed_s:.0f} s"
            return path, None, f"{text}: give --time {math.ceil(3.6 * needed_s)}"
        stages = host_stages.measure(
            session.ask,
            path,
            kick_runs_all=driver == "veth" and len(path.hops) == 1,
            seconds=whole_s / 3 if options.background else whole_s - path.elapsed_s,
            timeout_s=options.timeout_s,
            background=options.background,
            one_clock=one_clock,
        )
    return path, stages, ""
