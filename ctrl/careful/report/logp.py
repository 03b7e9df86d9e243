"""LogP signatures as text and JSON."""

from __future__ import annotations

from typing import Any

from careful.measure.estimate import t_quantile
from careful.measure.logp import Curve, Result, Trial
from careful.measure.sample import Figure
from careful.report.tables import table

#: What each figure is, in the order of the table.
_MEANINGS = {
    "os": "to send a request",
    "or": "to take a reply",
    "g": "gap between messages",
    "L": "latency one way, without overheads",
    "rtt": "round trip, 2 (os + L + or)",
}


def named(found: Result) -> dict[str, Figure]:
    """The figures by the names of P4."""
    return {"os": found.os, "or": found.or_, "g": found.g, "L": found.L, "rtt": found.rtt}


def _curve(curve: Curve) -> dict[str, Any]:
    costs, errors = curve.costs()
    half = t_quantile(max(curve.samples_count - 1, 1))
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


def _trial(trial: Trial) -> dict[str, Any]:
    one = {
        "messages": trial.messages,
        "predicted_us": round(trial.predicted_us, 4),
        "predicted_by": trial.predicted_by,
    }
    error = trial.error
    return (
        one
        | trial.measured_us.figures("measured", "us")
        | {"error": None if error is None else round(error, 5)}
    )


def figures(found: Result) -> dict[str, Any]:
    """Everything that was read off a signature, for JSON."""
    flat: dict[str, Any] = {
        "kind": "logp",
        "layer": found.layer,
        "capacity_messages": found.capacity,
        "settled": found.settled,
    }
    for name, figure in named(found).items():
        flat |= figure.figures(name, "us")
    return flat | {
        "curves": [_curve(curve) for curve in found.curves],
        "trials": [_trial(trial) for trial in found.trials],
        "bursts_count": found.bursts_count,
        "elapsed_s": round(found.elapsed_s, 3),
        "messages_are": "bursts' lengths; a figure holds for those from low to high",
        "trials_are": "until the last reply, less half of a round trip",
        "notes": found.notes,
    }


def shown(figure: Figure) -> str:
    """A figure with half of its interval, or a dash."""
    if not figure.estimate:
        return "-"
    value, half = figure.estimate.value, figure.estimate.half
    digits = 1 if value >= 1000 else 2 if value >= 10 else 3
    return f"{value:.{digits}f} ±{half:.{digits}f}"


def text(found: Result, host: str) -> str:
    """The same for people."""
    rows = [
        (name, shown(one), one.samples_count, _range(one), one.reason or _MEANINGS[name])
        for name, one in named(found).items()
        if one.estimate or one.reason
    ]
    columns = ("", "µs", "bursts", "messages", "")
    lines = [table(f"{found.layer} to {host}", columns, rows)]
    for curve in found.curves:
        steady = curve.steady_messages
        lines.append(
            f"D = {curve.compute_us:g} µs: send only up to {curve.send_messages} messages, "
            + (f"steady from {steady}" if steady else "no steady regime")
        )
    errors = [trial.error for trial in found.trials if trial.error is not None]
    if errors:
        worst = max(errors, key=abs)
        lines.append(
            f"bursts of {found.trials[0].messages} to {found.trials[-1].messages}: "
            f"{found.trials[0].predicted_by} is off by {worst:+.1%} at most"
        )
    lines.append(
        f"{found.bursts_count} bursts in {found.elapsed_s:.1f} s, "
        f"at most {found.capacity} messages under way"
    )
    if not found.settled:
        lines.append("stopped before the intervals were as narrow as asked for")
    return "\n".join(lines + found.notes)


def _range(figure: Figure) -> str:
    if figure.low_messages == figure.high_messages:
        return str(figure.low_messages)
    return f"{figure.low_messages}-{figure.high_messages}"
