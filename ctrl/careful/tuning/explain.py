"""Reports the settings in effect on each path of an instance, and the reasons. Changes nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from careful.control.instance import instances, live_latency, maps
from careful.control.options.config import Config
from careful.control.plans import tune_peers
from careful.control.plans.tune_peers import Row as InEffect
from careful.control.plans.tune_peers import Session, TunedPeer
from careful.control.state import kept_path
from careful.control.state.state_dir import StateDir, place
from careful.errors import InputError
from careful.jsonout import Json
from careful.model.measurements import Hops, combined
from careful.model.stages import Pipeline
from careful.plan import Limits, Plan
from careful.tuning import store_model
from careful.tuning.instance_path import kicks, plans, pulses
from careful.tuning.propose import Measured, measured, store_table, table
from careful.tuning.propose import Row as Proposed
from careful.tuning.settings import NET_TX, STORE, Kick, Pulse, Value, class_bytes
from careful.tuning.state import PathState, Store

#: Fragment size of the plots' curve for fixed fragments, bytes.
FIXED_BYTES = 4096


def gather(session: Session, hosts: Sequence[str], config: Config) -> Json:
    """Describes the paths of all peers, or only of some hosts.

    Raises CarefulError if a host is no peer, or if the map cannot be read.
    """
    shown = tune_peers.show(session, hosts, config)
    pids = [instances.tuner(queue.instance) for queue in session.queues]
    return {
        "instance": session.instance.name,
        "tuner_pid": next((pid for pid in pids if pid), None),
        "paths": [one for queue in session.queues for one in _paths(queue, shown, config)],
    }


def _paths(queue: Session, shown: Sequence[InEffect], config: Config) -> list[Json]:
    name = queue.instance.name
    lasting = StateDir(place(config))
    store = Store(queue.instance.directory, lasting)
    states, peers = store.load(), {peer.slot: peer for peer in queue.peers}
    rows = [row for row in shown if row.queue == name and row.slot in peers]
    with maps.live_map(name) as entries:
        counted = {
            row.slot: live_latency.cells_in(live_latency.whole(entries, row.slot)) for row in rows
        }
    paths = []
    for row in rows:
        address = peers[row.slot].address
        state, reason = _if_same_path(states.get(address), queue, peers[row.slot])
        peer = path(row, address, state, store)
        peer["hops"] = hops(kept_path.newest(lasting, peers[row.slot].ip), state)
        paths.append(with_live(peer | reason, counted[row.slot]))
    return paths


def hops(pathchar: Json | None, state: PathState | None) -> Json | None:
    """Names the bottleneck by a measurement of pathchar, with the path's black box if there is one.

    pathchar: the stored measurement (kept_path.newest).
    """
    if pathchar is None:
        return None
    named, rests_on = pathchar.get("bottleneck"), "pathchar alone"
    known = _measured(state) if state else None
    with suppress(InputError):
        if known:
            whole = combined([Hops.from_dict(pathchar, "pathchar"), known.box])
            middles = [(regime.low_bytes + regime.high_bytes) / 2 for regime in known.box.regimes]
            assert isinstance(whole, Pipeline)
            named = ", ".join(dict.fromkeys(whole.busiest(size) for size in middles))
            rests_on = whole.rests_on
    return {"bottleneck": named, "rests_on": rests_on, "ago_s": pathchar["ago_s"]}


def _if_same_path(
    state: PathState | None, queue: Session, peer: TunedPeer
) -> tuple[PathState | None, dict[str, str]]:
    """Returns the stored state, or None and the reason if it belongs to another path."""
    names = state.differs(queue.used, peer.frame_bytes) if state else []
    if not names:
        return state, {}
    reason = f"the stored figures were measured with another {', '.join(names)}"
    return None, {"why_not_measured": reason}


def path(row: InEffect, address: str, state: PathState | None, store: Store) -> Json:
    """Describes one path: its classes, the measurement, and the last decisions."""
    now, kick_bytes = plans(row.tune), kicks(row.tune)
    values: tuple[Value, ...] = (*now, *pulses(row.tune), *kick_bytes)
    state = state or PathState({})
    known = _measured(state)
    by_hand = store.by_hand(address, values)
    classes = [
        _class(index, plan, kick_bytes[index], state, by_hand & {index, NET_TX + index})
        for index, plan in enumerate(now)
    ]
    if known:
        for entry, plan, predicted in zip(classes, now, table(known, now), strict=True):
            entry |= _predicted(known, predicted.message_bytes, plan)
            tried = entry["tried"]
            if tried and tried["found"]:  # the plan comes from a trial, not from a prediction
                entry |= {"predicted_us": None, "predicted_low_us": None, "predicted_high_us": None}
            entry |= {
                "why": _reason(entry, predicted.why_not),
                "best": predicted.best.as_dict(),
                **predicted.best_us.figures("best", "us"),
                "bottleneck": dict(predicted.bottleneck),
                "why_not_best": predicted.why_not,
            }
    return {
        "peer": row.peer,
        "address": address,
        "classes": classes,
        "stores": _stores(row, state, by_hand),
        "sinks": _sinks(row, state),
        "measurement": _measurement(state),
        "why_not_measured": "" if known else _reason_not_measured(state),
        "decisions": [{**entry, "ago_s": _ago(entry["at_s"])} for entry in state.decisions],
    }


def _reason(row: Json, why_not: str) -> str:
    if row["standing"] != "as before":
        return ""
    return why_not or "a change waits: at most one is made in ten minutes"


def _reason_not_measured(state: PathState) -> str:
    reasons = (one["why"] for one in reversed(state.decisions) if one["what"] == "not measured")
    return str(next(reasons, "tune auto has not looked at this path"))


def with_live(described: Json, cells: Mapping[tuple[int, int], live_latency.Cell]) -> Json:
    """Adds the latencies of live messages since the instance began, by class.

    cells: cells of the path's entry in the live map (live_latency.cells_in).
    """
    for row in described["classes"]:
        cells_here = [cell for (index, _), cell in cells.items() if index == row["class"]]
        count = sum(cell.count for cell in cells_here)
        row["live_count"] = count
        row["live_us"] = sum(cell.sum_ns for cell in cells_here) / count / 1e3 if count else None
    return described


def _measured(state: PathState) -> Measured | None:
    if state.figures is None:
        return None
    try:
        return measured(state.figures, Limits(64, int(state.figures["frame_payload_bytes"])))
    except (ValueError, KeyError):
        return None


def _predicted(known: Measured, message_bytes: int, plan: Plan) -> dict[str, float]:
    """Predicts the plan in effect, one fragment, and fixed fragments of 4 KiB."""
    return {
        **known.latency_us(message_bytes, plan).figures("predicted", "us"),
        "one_fragment_us": known.box.latency_us(message_bytes, 1),
        "fixed_4KiB_us": known.box.latency_us(message_bytes, -(-message_bytes // FIXED_BYTES)),
    }


def _class(index: int, plan: Plan, kick: Kick, state: PathState, by_hand: frozenset[int]) -> Json:
    now: dict[int, Value] = {index: plan, NET_TX + index: kick}
    ab = _last_ab(index, now, state)
    tried = state.tried.get(index)
    return {
        "class": index,
        "message_bytes_max": class_bytes(index),
        "plan": plan.as_dict(),
        **kick.as_dict(),
        "standing": _standing(now, state, bool(by_hand), ab),
        "why": "",
        "measured_us": _measured_us(now, ab),
        "ab": ab["ab"] if ab else None,
        "tried": tried and {"ways_count": tried.ways_count, "found": tried.found},
    }


def _stores(row: InEffect, state: PathState, by_hand: frozenset[int]) -> list[Json]:
    known, stores = store_model.store_from_dict(state.store or {}), []
    values: tuple[Value, ...] = (*plans(row.tune), *pulses(row.tune))
    rows = {one.index - STORE: one for one in store_table(known, values)} if known else {}
    for index, setting in enumerate(row.tune):
        pulse = Pulse(setting.minpulse_bytes.get("store", 0))
        now: dict[int, Value] = {STORE + index: pulse}
        ab = _last_ab(index, now, state)
        standing = _standing(now, state, STORE + index in by_hand, ab)
        if standing != "as before":
            stores.append(
                {
                    "class": index,
                    "message_bytes_max": class_bytes(index),
                    **pulse.as_dict(),
                    **_store_prediction(known, rows.get(index)),
                    "standing": standing,
                    "measured_us": _measured_us(now, ab),
                    "ab": ab["ab"] if ab else None,
                }
            )
    return stores


def _sinks(row: InEffect, state: PathState) -> list[Json]:
    whys = {
        "host_tx": _host_tx_reason(state.figures),
        "net_tx": "busy until the device has completed the kicked frames; never on veth, where the "
        "kick itself completes them; without a prediction, other thresholds are tried",
        "host_rx": "never busy, because copies run on the engine's CPU; the gain of batches of "
        "copies is unknown",
        "store": "from the time of writes to files here"
        if state.store
        else "no writes to files were seen",
    }
    sinks = []
    for sink, why in whys.items():
        values = [setting.minpulse_bytes.get(sink, 0) for setting in row.tune]
        sinks.append(
            {"sink": sink, "least_bytes": min(values), "most_bytes": max(values), "why": why}
        )
    return sinks


def _host_tx_reason(figures: Json | None) -> str:
    """Returns why batches of copies gain little: at most this host's own time for a frame."""
    own_us, gap_us = (figures and figures.get(name) for name in ("own_gap_us", "g_b_us"))
    if not own_us or not gap_us:
        return "the path is not measured, so the gain of batches of copies is unknown"
    return (
        f"a frame costs this host {own_us:.1f} µs, copies included, of the bottleneck's "
        f"{gap_us:.1f} µs: batches of copies gain less"
    )


def _store_prediction(known: store_model.Store | None, predicted: Proposed | None) -> Json:
    if known is None:
        return {"why_not_predicted": "too few writes were seen"}  # no store is known
    if predicted is None:
        return {"why_not_predicted": "too few messages of that size were seen"}
    if not known.told_apart:
        return {"why_not_predicted": predicted.why_not}
    return {
        **predicted.now_us.figures("predicted", "us"),
        "best": predicted.best.as_dict(),
        **predicted.best_us.figures("best", "us"),
        "why_not_best": predicted.why_not,
        "write": known.figures(),
    }


def _last_ab(index: int, now: Mapping[int, Value], state: PathState) -> Json | None:
    values = [row.as_dict() for row in now.values()]
    for decision in reversed(state.decisions):
        for row in decision["classes"]:
            had = row["before"] in values or row["after"] in values
            if row["class"] == index and "ab" in row and had:
                return dict(row)
    return None


def _measured_us(now: Mapping[int, Value], ab: Json | None) -> float | None:
    """Returns the latency that an A/B measured with the values in effect; None: no A/B did."""
    if ab is None:
        return None
    side = "after" if _is_after(now, ab) else "before"
    value = ab["ab"].get(f"{side}_us")
    return None if value is None else float(value)


def _is_after(now: Mapping[int, Value], ab: Json) -> bool:
    return any(ab["after"] == value.as_dict() for value in now.values())


def _standing(now: Mapping[int, Value], state: PathState, by_hand: bool, ab: Json | None) -> str:
    if by_hand:
        return "set by hand"
    if now.keys() & state.on_trial.keys():
        return "on trial"
    if now.keys() & state.put_back.keys():
        return "others are tried"
    by_trying = any(state.found_by_search(item) for item in now)
    if any(item in state.unverified and state.unverified[item].after == now[item] for item in now):
        return "found by trying, unverified" if by_trying else "unverified"
    if ab and ab["ab"]["verdict"] == "held" and _is_after(now, ab):
        return "found by trying" if by_trying else "verified"
    if ab and ab["ab"]["verdict"] == "not held" and not _is_after(now, ab):
        return "as before: the change did not hold"
    return "as before"


def _measurement(state: PathState) -> Json | None:
    if state.figures is None:
        return None
    return {
        **state.figures,
        "by": "measure blackbox: round trips and trains through careful itself",
        "why": state.reason,
        "ago_s": _ago(state.measured_at),
        "confirmed_ago_s": None if state.confirmed_at is None else _ago(state.confirmed_at),
    }


def _ago(at_s: float) -> float:
    return round(time.monotonic() - at_s, 1)
