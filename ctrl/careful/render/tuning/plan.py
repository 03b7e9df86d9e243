"""`carefulctl plan` as text, JSON and plots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from careful.errors import InputError, WithheldError
from careful.extras import lacking
from careful.model import surfaces
from careful.model.blackbox import BlackBox
from careful.model.planner import STRATEGIES, Plan, measured_limits, plan, rules
from careful.model.simulation import Message, simulate
from careful.model.stages import MESSAGE_BYTES_MAX, Pipeline
from careful.model.tunemap import RAMP_GAIN_MIN, ClassPlan, class_table
from careful.plan import Limits
from careful.render.tables import table
from careful.render.tuning import plan_plots
from careful.units import shown_time, sizes

#: Fragment sizes of FM and of GAM (P1 section 5.4).
STATIC_BYTES = (128, 4096)


@dataclass(frozen=True)
class Request:
    """The request to `plan`: the source and the options, in bytes and counts."""

    origin: str
    source: Pipeline | BlackBox
    message_bytes: int
    strategy: str
    fragments_count: int | None
    min_bytes: int
    max_bytes: int | None
    header_bytes: int
    levels: tuple[str, str] = ("fixed", "fixed")

    @property
    def limits(self) -> Limits:
        """Raises ValueError for bounds that exclude each other."""
        return Limits(self.min_bytes, self.max_bytes)

    def pipeline(self) -> Pipeline:
        """Returns the stages with the header; raises ValueError for a black box."""
        if isinstance(self.source, Pipeline):
            return self.source.with_header(self.header_bytes)
        raise InputError("a black-box measurement has no stages: draw --figure latency")

    def answer(self, strategy: str | None = None) -> Plan:
        """Returns the plan; raises ValueError if none is possible."""
        strategy = strategy or self.strategy
        if isinstance(self.source, BlackBox):
            if strategy not in ("best", "fixed"):
                raise InputError(
                    f"strategy {strategy} needs every stage: "
                    "a black-box measurement can plan only equal fragments"
                )
            _refuse_header(self.header_bytes)
            return self.source.plan(self.message_bytes, self.limits, self.fragments_count)
        return plan(
            self.pipeline(),
            self.message_bytes,
            strategy,
            fragments_count=self.fragments_count,
            limits=self.limits,
            levels=self.levels,
        )

    def inputs(self) -> dict[str, object]:
        """Returns all inputs, for JSON."""
        given = {key: value for key, value in vars(self).items() if key not in ("origin", "source")}
        return {"pipeline": self.origin, **_source_inputs(self.source), **given}


def _refuse_header(header_bytes: int) -> None:
    if header_bytes:
        raise InputError(
            "--header-bytes needs the figures of every stage; a black-box measurement has none"
        )


def _source_inputs(source: Pipeline | BlackBox) -> dict[str, object]:
    if isinstance(source, BlackBox):
        return {"kind": "blackbox", **asdict(source)}
    return asdict(source)


def _bare(request: Request) -> Plan | None:
    """Returns the plan without the header, if there is one."""
    return replace(request, header_bytes=0).answer() if request.header_bytes else None


def plan_figures(request: Request) -> dict[str, object]:
    """Returns the plan of one message for JSON."""
    found = request.answer().as_dict()
    if bare := _bare(request):
        names = ("latency_us", "fragments_count", "one_fragment_us")
        found["without_header"] = {name: getattr(bare, name) for name in names}
    return found


def plan_text(request: Request) -> str:
    """Shows the plan of one message; with strategy "best", all strategies side by side."""
    best, bare = request.answer(), _bare(request)
    lines = []
    if request.strategy == "best" and isinstance(request.source, Pipeline):
        plans = [best]
        if not request.source.shares_resources():
            tried = [one for one in STRATEGIES if one != "lp" or not lacking("scipy", one)]
            plans = [request.answer(strategy) for strategy in tried]
        rows = [
            (
                each.strategy,
                each.latency_us,
                100 * (each.one_fragment_us / each.latency_us - 1),
                each.fragments_count,
                sizes(each.fragments_bytes, 8),
            )
            for each in plans
        ]
        columns = ("strategy", "latency (µs)", "gain over k=1 (%)", "k", "fragments (bytes)")
        lines.append(table("", columns, rows))
    gain = 100 * (best.one_fragment_us / best.latency_us - 1)
    lines.append(
        f"{best.strategy}: {shown_time(best.latency_us, 4)} in {best.fragments_count} fragments, "
        f"{gain:.1f} % faster than in one ({shown_time(best.one_fragment_us, 4)}); "
        f"lower bound {shown_time(best.lower_bound_us, 4)}"
    )
    lines.append(f"bottleneck: {best.bottleneck}")
    lines.append(f"fragments (bytes): {sizes(best.fragments_bytes)}")
    for level in best.levels[1:]:
        lines.append(f"in {level.name} (bytes): {sizes(level.fragments_bytes)}")
    if bare:
        gain = 100 * (bare.one_fragment_us / bare.latency_us - 1)
        lines.append(
            f"without the header of {request.header_bytes} bytes: "
            f"{shown_time(bare.latency_us, 4)} in {bare.fragments_count} fragments, "
            f"{gain:.1f} % faster than in one"
        )
    if best.note:
        lines.append(best.note)
    return "\n".join(lines)


def withheld(error: WithheldError, origin: str) -> tuple[dict[str, object], str]:
    """Shows what to send if a measurement withholds figures that a plan needs: figures, text."""
    figures: dict[str, object] = {
        "withheld": error.figures,
        "reason": error.reason,
        "fragment_bytes": error.frame_bytes or None,
    }
    frames = f"whole frames ({error.frame_bytes} bytes)" if error.frame_bytes else "whole frames"
    return figures, (
        f"{frames} are as good as any size that {origin} shows: it cannot tell the stages of this "
        f"path apart\nnot told: {error.figures}: {error.reason}\n"
        "measure again, for longer or on a quieter machine, to see more"
    )


def classes(
    source: Pipeline | BlackBox,
    origin: str,
    min_bytes: int,
    max_bytes: int | None,
    header_bytes: int,
) -> tuple[dict[str, object], dict[str, object], str]:
    """Plans the tune map's sixteen classes; returns inputs, figures and text."""
    limits = Limits(min_bytes, max_bytes)
    if isinstance(source, BlackBox):
        _refuse_header(header_bytes)
        found = class_table(source, limits)
    else:
        limits = measured_limits(source, MESSAGE_BYTES_MAX, limits)
        found = class_table(source.with_header(header_bytes), limits)
    pays = [each for each in found if each.ramp_gain >= RAMP_GAIN_MIN]
    inputs = {
        "pipeline": origin,
        **_source_inputs(source),
        "min_bytes": limits.min_bytes,
        "max_bytes": limits.max_bytes,
        "header_bytes": header_bytes,
        "ramp_gain_min_percent": 100 * RAMP_GAIN_MIN,
    }
    figures = {"ramps_pay": bool(pays), "classes": [each.as_dict() for each in found]}
    if isinstance(source, BlackBox):
        rows = [(each.message_bytes, _words(each), each.latency_us) for each in found]
        columns = ("up to (bytes)", "plan (bytes)", "latency (µs)")
        verdict = "a black-box measurement can plan only equal fragments"
        return inputs, figures, table(origin, columns, rows) + "\n" + verdict
    rests = f"\nrests on this: {source.rests_on}" if source.rests_on else ""
    return inputs, figures, _compared(source.name, found, pays) + rests


def _compared(name: str, found: Sequence[ClassPlan], pays: Sequence[ClassPlan]) -> str:
    """Compares each class's plan with other strategies; the pipeline's stages are known."""
    columns = (
        "up to (bytes)",
        "plan (bytes)",
        "latency (µs)",
        "ramp gain (%)",
        "loss (%)",
        "with reassembly (%)",
    )
    rows = [
        (
            each.message_bytes,
            _words(each),
            each.latency_us,
            100 * each.ramp_gain,
            100 * each.flat_loss,
            100 * each.loss,
        )
        for each in found
    ]
    verdict = f"ramps gain {100 * RAMP_GAIN_MIN:g} % or more over fixed sizes " + (
        f"for messages of {', '.join(str(each.message_bytes) for each in pays)} bytes"
        if pays
        else "for no class: fixed sizes are enough here"
    )
    return table(name, columns, rows) + "\n" + verdict


def _words(each: ClassPlan) -> str:
    numbers = each.plan
    gathered = f", blocks {each.block_bytes}" if each.block_bytes else ""
    if numbers.is_fixed:
        return f"fixed {numbers.first_bytes}{gathered}"
    words = f"{numbers.first_bytes} x{numbers.ratio_q16 / 65536:.3f}+{numbers.step_bytes}"
    words += f" to {numbers.peak_bytes}"
    if numbers.down_ratio_q16 != 65536 or numbers.down_step_bytes:
        words += f", x{numbers.down_ratio_q16 / 65536:.3f}+{numbers.down_step_bytes}"
    return words + gathered


def draw(request: Request, path: Path, figure: str, varied: str | None, old: str, new: str) -> None:
    """Draws one of the figures of `carefulctl plan --figure`."""
    if isinstance(request.source, BlackBox) and figure == "latency":
        plan_plots.black_box_curve(request.source, request.answer(), path)
        return
    pipeline = request.pipeline()
    if figure == "latency":
        fixed, best = request.answer("fixed"), request.answer()
        answers = [fixed] if best.latency_us == fixed.latency_us else [fixed, best]
        plan_plots.latency_curve(pipeline, request.message_bytes, answers, path)
        return
    if figure == "space-time":
        made = request.answer()
        outcome = simulate(pipeline, [Message(request.message_bytes)], rules(pipeline, made))
        title = f"{pipeline.name}: {request.message_bytes} B, {made.strategy}"
        plan_plots.space_time(pipeline, outcome, title, path)
        return
    if figure == "static":
        step = max(1, request.message_bytes // 64)
        swept = range(step, 2 * request.message_bytes + 1, step)
        plan_plots.static_sizes(surfaces.against_static(pipeline, swept, STATIC_BYTES), path)
        return
    stage = varied or max(pipeline.stages, key=lambda each: each.g_us).name
    if figure == "improvement":
        found = surfaces.over_bandwidth(pipeline, stage, request.message_bytes, old, new)
    else:
        found = surfaces.over_sizes(pipeline, stage, old, new)
    plan_plots.surface(found, path)
