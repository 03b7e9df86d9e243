"""The stages of a path, those inside the hosts included, as text and JSON."""

from __future__ import annotations

from careful.jsonout import Json
from careful.measure.path.host_stages import Stage, Stages
from careful.render.digits import estimate_figures, or_most, with_half
from careful.render.tables import table


def _stage(stage: Stage) -> dict[str, object]:
    line, own = stage.line, stage.own
    return {
        "stages": list(stage.names),
        "address": stage.address,
        **estimate_figures(stage.g_us, "g", "us", 3),
        **estimate_figures(stage.latency_us, "latency", "us", 3),
        **estimate_figures(stage.G_us_per_KiB, "G", "us_per_KiB", 3),
        **estimate_figures(own.middle_us if own else None, "middle", "us", 3),
        "middle_bytes": round(own.middle_bytes, 1) if own else None,
        "residual_us": round(own.residual_us, 3) if own else None,
        "samples_count": line.samples_count,
        "sizes_count": line.points_count,
        "size_min_bytes": int(line.size_min_bytes),
        "size_max_bytes": int(line.size_max_bytes),
        "resource": stage.resource,
        "reason": stage.reason,
    }


def resources(found: Stages) -> dict[str, list[str]]:
    """Returns resource -> stages; stages on one thread or CPU never overlap."""
    shared: dict[str, list[str]] = {}
    for stage in found.stages:
        names = [name for name in stage.names if not name.startswith("hop ")]
        if stage.resource:
            shared.setdefault(stage.resource, []).extend(names)
    return shared


def stages_figures(found: Stages) -> Json:
    """Returns the stages for JSON."""
    made: dict[str, object] = {
        "stages": [_stage(stage) for stage in found.stages],
        "resources": resources(found),
        "pings_count": found.probes_count,
        "pings_lost_count": found.lost_count,
        "ping_rounds_count": found.rounds_count,
        "stages_elapsed_s": round(found.elapsed_s, 3),
        "stages_notes": found.notes,
    }
    if found.one_way is not None:
        low, high = int(found.one_way.size_min_bytes), int(found.one_way.size_max_bytes)
        made["one_way"] = [
            {
                "size_bytes": size,
                "measured_us": round(found.one_way.at(size), 2),
                **estimate_figures(found.sum_us(size), "sum_of_stages", "us", 2),
            }
            for size in (low, (low + high) // 2, high)
        ]
    return made


def _row(stage: Stage, size_bytes: int) -> tuple[object, ...]:
    # A stage of a host has no address and no propagation.
    g = or_most(stage.latency_us or stage.g_us, stage.at(int(stage.line.size_min_bytes)))
    return (
        ", ".join(stage.names),
        stage.address,
        "" if stage.address else g,
        g if stage.address else "",
        or_most(stage.G_us_per_KiB, stage.own.G_us_per_KiB if stage.own else None),
        with_half(stage.at(size_bytes)),
        stage.line.samples_count,
    )


def stages_table(found: Stages, host: str) -> str:
    """Returns the stages for people."""
    line = found.stages[0].line
    size_bytes = round((line.size_min_bytes + line.size_max_bytes) / 2)
    columns = (
        "stage",
        "address",
        "g (µs)",
        "latency (µs)",
        "G (µs/KiB)",
        f"{size_bytes} bytes (µs)",
        "samples",
    )
    rows = [_row(stage, size_bytes) for stage in found.stages]
    lines = [table(f"stages to {host}", columns, rows)]
    lines.append(
        f"\n{found.probes_count} pings as far as the store ({found.lost_count} unusable) in "
        f"{found.elapsed_s:.1f} s"
    )
    for one in stages_figures(found).get("one_way", []):
        total = found.sum_us(one["size_bytes"])
        text = f"sum {with_half(total)} µs" if total else "sum -: not every stage is known"
        lines.append(
            f"one way, {one['size_bytes']} bytes: measured {one['measured_us']} µs, "
            f"the stages' {text}"
        )
    lines += [
        f"{', '.join(stage.names)}: {stage.reason}"
        for stage in found.stages
        if stage.reason and not stage.is_bounded
    ]
    lines += [
        f"one resource: {', '.join(names)} ({name})"
        for name, names in resources(found).items()
        if len(names) > 1
    ]
    return "\n".join([*lines, *found.notes])
