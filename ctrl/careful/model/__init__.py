"""The pipeline model: latency and optimal fragmentation, computed and simulated.

Sources: P1 (optimal pipelines) sections 2 to 5, P3 (cut-through), P5 (adaptive pipelining). Pure
computation on numpy, except that `files.py` reads files. Only the linear program imports scipy (the
extra `plan`).
"""

from careful.model.blackbox import BlackBox as BlackBox
from careful.model.files import load_pipeline as load_pipeline
from careful.model.files import load_shipped as load_shipped
from careful.model.files import parse_pipeline as parse_pipeline
from careful.model.files import parse_source as parse_source
from careful.model.files import shipped_names as shipped_names
from careful.model.fixed import best_count as best_count
from careful.model.fixed import candidates as candidates
from careful.model.fixed import optimal_count as optimal_count
from careful.model.fixed import optimal_size_bytes as optimal_size_bytes
from careful.model.hierarchy import hierarchical as hierarchical
from careful.model.latency import exit_times_us as exit_times_us
from careful.model.latency import fixed_latency_us as fixed_latency_us
from careful.model.latency import latency_us as latency_us
from careful.model.latency import lower_bound_us as lower_bound_us
from careful.model.latency import signature_us as signature_us
from careful.model.lp import lp_sizes as lp_sizes
from careful.model.planner import STRATEGIES as STRATEGIES
from careful.model.planner import Plan as Plan
from careful.model.planner import plan as plan
from careful.model.pulses import cut_through_speedup as cut_through_speedup
from careful.model.pulses import pulse_rules as pulse_rules
from careful.model.simulation import EagerPulse as EagerPulse
from careful.model.simulation import FixedPulse as FixedPulse
from careful.model.simulation import Message as Message
from careful.model.simulation import Sizes as Sizes
from careful.model.simulation import WholeMessage as WholeMessage
from careful.model.simulation import simulate as simulate
from careful.model.stages import Pipeline as Pipeline
from careful.model.stages import Stage as Stage
from careful.model.tunemap import ClassPlan as ClassPlan
from careful.model.tunemap import class_plan as class_plan
from careful.model.tunemap import class_table as class_table
from careful.plan import Limits as Limits
from careful.plan import class_of as class_of
