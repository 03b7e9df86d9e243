"""The output of `up`, `down` and `status`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from careful.control.instance.records import BOUNDS, DECIDED, ETHERNET_BYTES, narrow, older, unheard
from careful.control.instance.status import slow_clients
from careful.errors import shown
from careful.render.tables import Parts, Table, alarm, report_text
from careful.units import counted, shown_rate
from careful.units import shown_bytes as size

if TYPE_CHECKING:
    from careful.control.carefuld.daemon import Down
    from careful.control.instance.records import PeerStatus, ProgramStatus
    from careful.control.instance.status import Lent, QueueStatus, Status
    from careful.control.instance.top import PeerRates, Rates
    from careful.control.options.exports import Export


#: Columns of peers that are shown only if a peer has something there.
_RARE = ("window", "owed", "kept", "sent again", "asked again")
#: A longer reason for the XDP mode has a line of its own.
_WHY_LENGTH = 12


def _carefuld(found: Status) -> str:
    return f"carefuld {found.pid or 'in another PID namespace'}"


def effect(found: Status) -> list[str]:
    """Describes all settings, in indented lines."""
    wait = found.wait
    if wait == "adaptive":
        wait += f", spins {found.spin_us} µs"
    bound = BOUNDS.get(found.receive_bound, found.receive_bound)
    reserve = found.reserve_buffers
    kept = f", {found.reserve_free_buffers} of the {reserve} in reserve free" if reserve else ""
    lines = [
        *settings(found),
        f"  wait {wait}, protocol {found.protocol}"
        f"{', repair off' if found.repair == 'off' else ''}",
        f"  receive buffers: bounded by {bound}{kept}, "
        f"updates from {found.update_threshold_buffers} owed, "
        f"UMEM {size(found.umem_bytes)}{' in hugepages' if found.hugepages else ''}",
    ]
    if found.tuner_pid:
        lines.append(f"  tuned by process {found.tuner_pid} (carefulctl tune explain)")
    return lines


def settings(found: Status) -> list[str]:
    """Describes the most important settings, in indented lines."""
    copy = "zero-copy" if found.zerocopy else "copy"
    reserve = f", {found.reserve_buffers} in reserve" if found.reserve_buffers else ""
    why = _why(found)
    brief = len(why) <= _WHY_LENGTH
    lines = [
        f"  {found.driver}, MTU {found.mtu_bytes}, UDP port {found.port}, "
        f"{'keys' if found.keyed else 'no keys'}, "
        f"XDP {found.xdp_mode}{f' ({why})' if brief else ''}, {copy}",
        *([] if brief else [f"  XDP {found.xdp_mode}: {why}"]),
        f"  window: {found.window_buffers} frames per peer ({found.receive_buffers} receive "
        f"buffers / {found.peers_max} peers{reserve})",
        "  exports " + _exports(found.exports),
        *lent(found.lent),
    ]
    if not found.multibuffer:
        lines.append(_single(found))
    if denied := found.io_uring_denied:
        lines.append(f"  threads read and write files: io_uring is denied ({denied})")
    return lines


def _why(found: Status) -> str:
    """Returns the reason for the XDP mode."""
    refused = found.native_refused
    return f"native was refused: {refused}" if refused else DECIDED.get(found.xdp_by, "")


def _single(found: Status) -> str:
    """Describes the frame limit of a single buffer, and how to allow longer frames."""
    frame, whole = found.frame_bytes, found.mtu_bytes + ETHERNET_BYTES
    less = f", not the MTU's {whole}" if frame < whole else ""
    return (
        f"  frames have at most {frame} bytes{less}: one buffer each. Several buffers need Linux "
        "6.6 or later, and a driver that supports them in this mode"
    )


def _exports(found: Iterable[Export]) -> str:
    return ", ".join(map(_export, found)) or "nothing"


def _export(one: Export) -> str:
    words = ["writable"] if one.writable else []
    words += [word for word in ("owners", "devices") if getattr(one, word)]
    words += [f"for {' '.join(one.hosts)}"] if one.hosts else []
    return shown(one.path) + (f" ({', '.join(words)})" if words else "")


def lent(found: Lent | None) -> list[str]:
    """Describes the lent memory in lines; no line if this host lends none."""
    if found is None:
        return []
    owners = [
        f"{one.owner} {size(one.used)} in {counted(one.pieces, 'piece')}"
        + ("" if one.gone_s is None else f", without a session for {one.gone_s} s")
        for one in found.owners
    ]
    said = "; ".join(owners)
    return [
        f"  lends {size(found.nbytes)} of memory, {size(found.nbytes - found.used)} free"
        + (f": {said}" if said else "")
    ]


def up(found: Status, already: bool) -> str:
    """Describes the result of `up`."""
    if already:
        return f"{found.ifname}: is already up with these options ({_carefuld(found)})"
    return "\n".join([f"{found.ifname}: up ({_carefuld(found)})", *settings(found)])


def reloaded(found: Status, changed: list[str]) -> str:
    """Describes the result of `up --reload`."""
    if not changed:
        return f"{found.ifname}: has these options already ({_carefuld(found)})"
    return f"{found.ifname}: {'; '.join(changed)}\n" + "\n".join(settings(found))


def _counts(found: Mapping[str, int]) -> list[tuple[str, int]]:
    return [(name, value) for name, value in found.items() if value]


def _state(one: PeerStatus) -> str:
    """Returns the state of a session; red if it does not work."""
    said = str(one.state) + (f": {one.error}" if one.error else "")
    return alarm(said) if one.trouble else said


def _peers(found: Sequence[PeerStatus]) -> Table:
    """Returns the sessions; rare columns that are empty for all peers are left out."""
    columns: dict[str, list[object]] = {
        "peer": [one.node or one.name or "?" for one in found],
        "address": [one.address for one in found],
        "state": [_state(one) for one in found],
        "credits": [f"{one.credits_free}/{one.credits_window}" for one in found],
        "window": [_congested(one) for one in found],
        "owed": [one.buffers_owed for one in found],
        "kept": [one.buffers_kept for one in found],
        "sent": [size(one.tx_bytes) for one in found],
        "received": [size(one.rx_bytes) for one in found],
        "lost here": [_lost(one.lost_here_frames) for one in found],
        "lost there": [_lost(one.lost_there_frames) for one in found],
        "sent again": [one.sent_again_frames for one in found],
        "asked again": [one.asked_again_frames for one in found],
        "epochs": [one.epochs for one in found],
    }
    shown = {name: cells for name, cells in columns.items() if name not in _RARE or any(cells)}
    return Table("", list(shown), list(zip(*shown.values(), strict=True)))


def _congested(one: PeerStatus) -> str:
    present, whole = one.window_now_buffers, one.window_buffers
    return f"{present} of {whole}" if present < whole else ""


def _programs(found: Sequence[ProgramStatus]) -> Table:
    names = ["operations", "unread", "unanswered", "handlers", "regions", "asked", "told"]
    rows = [
        (
            one.name + (alarm(" (stalled)") if one.stalled else ""),
            one.pid,
            *(getattr(one, name) for name in names),
        )
        for one in found
    ]
    return Table("", ["program", "process", *names], rows)


def _queues(found: Sequence[QueueStatus]) -> Table:
    names = ["port", "pid", "rx_frames", "tx_frames"]
    rows = [
        (one.queue, f"{one.peers}/{one.peers_max}", *(getattr(one, name) for name in names))
        for one in found
    ]
    columns = ["queue", "peers", "port", "process", "received frames", "sent frames"]
    return Table("", columns, rows)


def _sealed(found: Sequence[PeerStatus]) -> list[str]:
    return [
        f"  {one.called}: frames are sealed ({one.seal}"
        + (f", {one.cipher.replace('_', '-')})" if one.cipher else ")")
        for one in found
        if one.seal != "off"
    ]


def _windows(found: Status) -> list[str]:
    return [
        f"  window {one.window_buffers} of {found.window_buffers}: the path from "
        f"{one.called} takes {one.burst_frames} frames at once"
        for one in found.peers
        if one.burst == "short" and one.window_buffers < found.window_buffers
    ]


def _repairs(found: Sequence[PeerStatus]) -> list[str]:
    """Returns why frames of each peer were requested again."""
    return [
        f"  {one.called}: {one.asked_again_frames} frames requested again: "
        f"{one.asked_again_frames - one.asked_silent_frames} after a gap, "
        f"{one.asked_silent_frames} in silence; {one.late_frames} were only late"
        for one in found
        if one.asked_again_frames
    ]


def _lost(frames: int) -> str | int:
    return alarm(str(frames)) if frames else 0


def troubles(found: Status) -> list[str]:
    """Returns a line for each thing that is wrong now, or that lost data in this session."""
    lines = [found.link_trouble] if found.link_trouble else []
    if found.counters["device_program_detached"]:
        said = "the XDP program was removed from the interface, so no frame arrives"
        lines.append(f"{said}: carefulctl down {found.ifname}, then up")
    for one in found.peers:
        if one.trouble:
            lines.append(f"{one.called}: {one.trouble}")
        if lost := one.lost_here_frames + one.lost_there_frames:
            lines.append(
                f"{one.called}: the network lost {lost} frames ({one.lost_here_frames} on the way "
                f"here, {one.lost_there_frames} on the way there); their data was sent again"
            )
    lines += [
        f"a slow client here keeps frames of {name}, so credits are withheld from {name}"
        for name in slow_clients(found)
    ]
    lines += [
        f"program {one.name} ({one.pid}) reads no messages" for one in found.programs if one.stalled
    ]
    if damaged := found.counters["digest_bad"]:
        lines.append(f"{damaged} messages arrived damaged: their digests did not match")
    return lines + unheard(found.peers, found.port, found.master)


def _remarks(found: Status) -> list[str]:
    """Returns a line for each thing that is unusual but not wrong."""
    lines = _windows(found) + _sealed(found.peers)
    return lines + [f"  {one}" for one in [*older(found.peers), *narrow(found.peers)]]


def _verdict(found: Status) -> list[str]:
    """Returns a line that reports whether all is well, and a line for each thing that is wrong."""
    name = found.ifname
    if found.instance != name:
        name += f" (instance {found.instance})"
    wrong = troubles(found)
    if not wrong:
        states = [one.state for one in found.peers]
        counts = [(states.count(state), state) for state in ("up", "connecting")]
        said = [f"{counted(count, 'peer')} {state}" for count, state in counts if count]
        return [f"{name}: all is well, {', '.join(said) or 'no peers'}"]
    return [f"{name}: {alarm('not well')}, log {found.log}", *(alarm(f"  {one}") for one in wrong)]


def _status(found: Status) -> Parts:
    parts: Parts = [*_verdict(found), f"{_carefuld(found)}, log {found.log}", *effect(found)]
    parts += ["", _peers(found.peers)] if found.peers else ["  no peers"]
    if found.programs:
        parts += ["", _programs(found.programs)]
    if found.queues:
        parts += ["", _queues(found.queues)]
    parts += _remarks(found) + _repairs(found.peers)
    names = [*((name, value, "") for name, value in _counts(found.counters))]
    names += [(name, value, "XDP") for name, value in _counts(found.xdp_counters)]
    if names:
        parts += ["", Table("", ["counter", "count", "where"], names)]
    if found.xdp_counters_error:
        parts.append(f"  XDP's counters: {found.xdp_counters_error}")
    return parts


def _brief(found: Status, rates: Sequence[PeerRates]) -> Parts:
    parts: Parts = [*_verdict(found), *settings(found), *_remarks(found)]
    if found.programs:
        parts.append("  shared by " + ", ".join(one.name for one in found.programs))
    if not found.peers:
        return parts
    troubled = {one.address for one in found.peers if one.trouble}
    rows = [
        (
            one.peer,
            one.address,
            alarm(one.state) if one.address in troubled else one.state,
            shown_rate(one.tx_bytes_per_s),
            shown_rate(one.rx_bytes_per_s),
            _lost(one.lost_frames),
        )
        for one in rates
    ]
    columns = ["peer", "address", "state", "sends", "receives", "lost"]
    return [*parts, "", Table("", columns, rows)]


def _joined(each: list[Parts], died: Mapping[str, str]) -> Parts:
    each = each or [["careful is not up"]]
    each += [[alarm(f"instance {one}: {died[one]}")] for one in died]
    return [*each[0], *(line for one in each[1:] for line in ("", *one))]


def parts(found: Iterable[Status], died: Mapping[str, str]) -> Parts:
    """Returns every instance; died: why carefuld ended or does not answer, by name."""
    return _joined([_status(one) for one in found], died)


def statuses(found: Iterable[Status], died: Mapping[str, str]) -> str:
    """Returns parts() as text."""
    return report_text(parts(found, died))


def brief(found: Iterable[Status], rates: Iterable[Rates], died: Mapping[str, str]) -> str:
    """Returns the state of every instance in a few lines.

    rates: of each instance, in the same order; died: as for parts().
    """
    each = [_brief(one, its.peers) for one, its in zip(found, rates, strict=True)]
    return report_text(_joined(each, died))


def down(ifname: str, done: Down) -> str:
    """Returns the result of `down` as a line."""
    if done.process == "left":
        return (
            f"{ifname}: carefuld ended, except for operations that hang in a file system; its "
            "process ends with them (its log has their number)"
        )
    if done.process == "up":
        return f"{ifname}: careful is up, and stays up"
    if done.process:
        return f"{ifname}: carefuld {done.process}"
    return f"{ifname}: {'leftovers removed' if done.cleared else 'careful was not up'}"
