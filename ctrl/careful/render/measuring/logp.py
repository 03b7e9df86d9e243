"""LogP signatures as text and JSON."""

from __future__ import annotations

from careful.measure.endpoints.curve import Curve
from careful.measure.endpoints.logp import Result
from careful.measure.endpoints.predict import Trial
from careful.measure.statistics.estimate import LEVEL, Estimate
from careful.measure.statistics.line import RELATIVE_MAX
from careful.measure.statistics.quantiles import t_quantile
from careful.measure.statistics.sample import Figure
from careful.render.digits import or_most
from careful.render.tables import Parts, Table, report_text
from careful.units import shown_time

#: Meaning of each figure, in the order of the table.
_MEANINGS = {
    "os": "to send a request",
    "os_D": "to send a request after D",
    "or": "to take a reply",
    "g": "gap between messages",
    "L": "latency one way, without overheads",
    "rtt": "round trip, 2 (os + L + or)",
}


def named(found: Result) -> dict[str, Figure]:
    """Returns the figures by P4's names, and one more that P4 does not name."""
    return {
        "os": found.os,
        "os_D": found.os_D,
        "or": found.or_,
        "g": found.g,
        "L": found.L,
        "rtt": found.rtt,
    }


def curve_figures(curve: Curve) -> dict[str, object]:
    """Returns a curve of a signature for JSON: its cost at each point."""
    costs, errors = curve.costs()
    half = t_quantile(LEVEL, max(curve.samples_count - 1, 1))
    return {
        "compute_us": curve.compute_us,
        "send_only_until_messages": curve.send_messages,
        "steady_from_messages": curve.steady_messages,
        "bursts_count": curve.samples_count,
        "points": [
            {
                "messages": int(messages),
                "cost_us": round(float(cost), 4),
                "cost_half_us": round(float(half * error), 4),
            }
            for messages, cost, error in zip(curve.bursts.marks, costs, errors, strict=True)
        ],
    }


def _trial(trial: Trial) -> dict[str, object]:
    one = {
        "messages": trial.messages,
        "predicted_us": round(trial.predicted_us, 4),
        "predicted_half_us": round(trial.predicted_half_us, 4),
        "predicted_by": trial.predicted_by,
    }
    error = trial.error
    return (
        one
        | trial.measured_us.figures("measured", "us")
        | {
            "error": None if error is None else round(error, 5),
            "error_half": None if error is None else round(trial.error_half, 5),
        }
    )


def logp_figures(found: Result) -> dict[str, object]:
    """Returns all results of a signature for JSON."""
    flat: dict[str, object] = {
        "kind": "logp",
        "layer": found.layer,
        "capacity_messages": found.capacity,
        "settled": found.settled,
    }
    for name, figure in named(found).items():
        flat |= figure.figures(name, "us")
    least_us, most_us = found.trips_us
    return flat | {
        "rtt_least_us": round(least_us, 4),
        "rtt_most_us": round(most_us, 4),
        "curves": [curve_figures(curve) for curve in found.curves],
        "trials": [_trial(trial) for trial in found.trials],
        "bursts_count": found.bursts_count,
        "elapsed_s": round(found.elapsed_s, 3),
        "messages_are": "messages of a burst; low and high, too: a figure is valid between them",
        "trials_are": "time until the last reply, minus half of a round trip",
        "notes": found.notes,
    }


def parts(found: Result, host: str) -> Parts:
    """Returns the results for people."""
    shown = {name: one for name, one in named(found).items() if one.estimate or one.reason}
    rows = [
        (
            name,
            or_most(one.estimate, Estimate(min(one.most, found.most_us(name)))),
            one.samples_count,
            _range(one),
            _MEANINGS[name],
        )
        for name, one in shown.items()
    ]
    columns = ("", "µs", "bursts", "messages", "")
    withheld: dict[str, list[str]] = {}
    for name, one in shown.items():
        if one.reason:
            withheld.setdefault(one.reason, []).append(name)
    gap, trip = found.g.estimate, found.rtt.estimate
    least, gap_us = ("", gap.value) if gap else ("at least ", found.most_us("g"))
    most, trip_us = ("", trip.value) if trip else ("at most ", found.trips_us[1])
    lines: Parts = [
        f"round trip: {most}{shown_time(trip_us)}",
        f"rate: {least}{1e6 / gap_us:,.0f} messages a second",
        *(f"not told exactly: {', '.join(names)}: {why}" for why, names in withheld.items()),
        "",
        Table(f"{found.layer} to {host}", columns, rows),
    ]
    for curve in found.curves:
        steady = curve.steady_messages
        lines.append(
            f"D = {shown_time(curve.compute_us)}: send only up to {curve.send_messages} messages"
            + (f", steady from {steady}" if steady else "")
        )
    # For D = 0, a line above already says so: it is why g is withheld.
    unsteady = [one.compute_us for one in found.curves[1:] if not one.steady_messages]
    if unsteady:
        also = "no steady regime" if found.curves[0].steady_messages else "not steady either"
        lines.append(f"{also}: D = {', '.join(map(shown_time, unsteady))}")
    lines.append("round trips took {} to {}".format(*map(shown_time, found.trips_us)))
    if found.trials:
        lines.append(_tried(found.trials))
    lines.append(
        f"{found.bursts_count} bursts in {found.elapsed_s:.1f} s, "
        f"at most {found.capacity} messages under way"
    )
    if not found.settled:
        lines.append("stopped before the intervals were as narrow as asked for")
    return lines + found.notes


def logp_text(found: Result, host: str) -> str:
    """Returns the results as text."""
    return report_text(parts(found, host))


def _tried(trials: list[Trial]) -> str:
    """Returns the model's error, over the bursts with a useful interval."""
    rule = trials[0].predicted_by
    known = [(one.error, one) for one in trials if one.error is not None]
    sure = [(error, one) for error, one in known if one.error_half <= RELATIVE_MAX]
    if not sure:
        text = f"bursts of {trials[0].messages} to {trials[-1].messages}"
        return f"{text}: their intervals are too wide to judge {rule}"
    error, worst = max(sure, key=lambda pair: abs(pair[0]))
    tried = ", ".join(str(one.messages) for _, one in sure)
    return f"bursts of {tried}: the largest error of {rule} is {error:+.1%} ±{worst.error_half:.1%}"


def _range(figure: Figure) -> str:
    if figure.low_messages == figure.high_messages:
        return str(figure.low_messages)
    return f"{figure.low_messages}-{figure.high_messages}"
