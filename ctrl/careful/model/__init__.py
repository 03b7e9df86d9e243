"""The pipeline model: latency and optimal fragmentation, computed and simulated.

Sources: P1 (optimal pipelines) sections 2 to 5, P3 (cut-through), P5 (adaptive pipelining). Pure
computation on numpy, except that `files.py` reads files. Only the linear program imports scipy (the
extra `plan`).
"""

from __future__ import annotations

from careful.model.blackbox import BlackBox
from careful.model.files import (
    load_pipeline,
    load_shipped,
    parse_pipeline,
    parse_source,
    shipped_names,
)
from careful.model.fixed import best_count, candidates, optimal_count, optimal_size_bytes
from careful.model.hierarchy import hierarchical
from careful.model.latency import (
    exit_times_us,
    fixed_latency_us,
    latency_us,
    lower_bound_us,
    signature_us,
)
from careful.model.lp import lp_sizes
from careful.model.planner import STRATEGIES, Plan, plan
from careful.model.pulses import cut_through_speedup, pulse_rules
from careful.model.simulation import EagerPulse, FixedPulse, Message, Sizes, WholeMessage, simulate
from careful.model.stages import Pipeline, Stage
from careful.model.tunemap import ClassPlan, class_plan, class_table
from careful.plan import Limits, class_of

__all__ = [
    "STRATEGIES",
    "BlackBox",
    "ClassPlan",
    "EagerPulse",
    "FixedPulse",
    "Limits",
    "Message",
    "Pipeline",
    "Plan",
    "Sizes",
    "Stage",
    "WholeMessage",
    "best_count",
    "candidates",
    "class_of",
    "class_plan",
    "class_table",
    "cut_through_speedup",
    "exit_times_us",
    "fixed_latency_us",
    "hierarchical",
    "latency_us",
    "load_pipeline",
    "load_shipped",
    "lower_bound_us",
    "lp_sizes",
    "optimal_count",
    "optimal_size_bytes",
    "parse_pipeline",
    "parse_source",
    "plan",
    "pulse_rules",
    "shipped_names",
    "signature_us",
    "simulate",
]
