"""Hints for users of rsync, scp, ping, iperf3 and tcpdump: what to type instead.

Imported only after a command has failed.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

_KEYS = "there is no ssh; hosts prove themselves with `carefulctl key`"
_ARCHIVE = "-a copies symlinks, hard links, times, owners and attributes"
_SHOWN = "progress is shown and partial files are resumed in any case"
_IFACE = "give the interface without an option"
_READ = {"-e -v -X -A": "write a file with -w; Wireshark and tshark show the rest"}

#: Commands -> options of other programs -> what to do instead.
_OPTIONS = {
    "get put sync cp": {
        "-z -C --compress": "nothing is compressed",
        "-P --partial --progress --info": _SHOWN,
        "--stats": "use --json",
        "-e --rsh": _KEYS,
        "--bwlimit": "use --rate-limit 1Gbit, or 10MB (bytes per second)",
    },
    "get put cp": {
        "-i -F -J -o": _KEYS,
        "-B -3 -T -O": "leave it out: it means nothing here",
        "-l": "scp's limit is --rate-limit 1Gbit here",
        "--ignore-existing": "files that exist are left alone without -f, -u or -c",
    },
    "get put": {"-H -A -X -t -o -g -D --links": _ARCHIVE, "--inplace": "use -c"},
    "get put sync": {
        "-I --ignore-times --size-only": "-c compares contents, whatever the times and sizes are",
        "--append": "partial files are resumed in any case",
    },
    "sync": {
        "--delete-after --delete-before --delete-during --del": "use --delete",
        "-i --itemize-changes": "-v names what is copied, and -n what would be",
        "-l -p -H -A -X -t -o -g -D --links": f"-a is always on: {_ARCHIVE}",
        "--inplace": "the blocks that differ are replaced in any case",
    },
    "ping": {
        "-w": "use -c N, and -i TIME",
        "-W": "ping ends at the first round trip without an answer",
        "-f -A": "use -i 1ms",
        "-q": "use --json, or look at the last line alone: `| tail -1`",
        "-n": "addresses are never looked up",
        "-4 -6": "give an address of that family instead of a name",
        "-I": "the route to HOST decides; --instance names another carefuld",
        "-t --ttl": "`carefulctl measure pathchar HOST` measures each hop",
        "-D": "`| ts` begins each line with the time",
        "-O -v": "each line is a round trip; the last lines sum them up",
    },
    "speed": {
        "-c": "give the host without an option: `carefulctl speed HOST`",
        "-R": "data comes from HOST; for the other way run `speed` there",
        "-P": "speed measures one stream",
        "-u": "careful always sends UDP",
        "-J": "use --json",
        "-i": "speed prints one table at its end",
        "-b -n -k": "speed sends as fast as it can for --time",
        "-l -w -M": "sizes are fixed: a request, a block of 8 KiB and a stream",
        "-B -4 -6": "the route to HOST decides; --instance names another carefuld",
        "-Z -O -V": "leave it out: it means nothing here",
        "-D": "run `carefulctl speed --serve &`",
    },
    "capture": {"-i": _IFACE, "-n -nn": "no names are looked up", "-c": "use --count N"} | _READ,
    "top": {"-i": _IFACE, "-d": "top looks once a second", "-b": "use -n N, or --json"},
    "ls": {"-a -A": "all names are listed"},
    "pathchar": {
        "-n": "addresses are never looked up",
        "-m": "use --max-hops N",
        "-w": "use --timeout TIME",
        "-q": "use --precision or --time",
        "-I -T -U": "probes are careful's own UDP",
    },
}

#: Former names of options -> those of today.
_RENAMED = {
    "--fragments-bytes": "--fragment-bytes",
    "--from0": "--null",
    "--keep": "--output",
    "--limit": "--timeout",
    "--messages": "--count",
    "--most": "--max-transfers",
    "--no-digest": "--digest none",
    "--no-sync": "--fsync none",
    "--replace": "--force",
}


def option(error: click.NoSuchOption) -> str:
    """Returns what to do instead of another program's or a former option, or ""."""
    if error.ctx is None:
        return ""
    new, command = _RENAMED.get(error.option_name, " "), error.ctx.info_name
    if any(new.split(" ")[0] in one.opts for one in error.ctx.command.params):
        return f"there is no {error.option_name}: use {new}"
    for commands, rows in _OPTIONS.items():
        for names, advice in rows.items():
            if command in commands.split() and error.option_name in names.split():
                return f"there is no {error.option_name}: {advice}"
    return ""


def path(words: Sequence[str]) -> str:
    """Returns a hint for users of rsync or scp who wrote h2:/path or h2::path, or ""."""
    for word in words:
        host, _, rest = word.partition(":/")
        if host and rest and not {"/", "@"} & set(host) and not rest.startswith("/"):
            return f"paths start below what {host} exports; `carefulctl ls {host}:` lists it"
        host, _, rest = word.partition("::")
        if host.isalnum() and rest:
            return f"careful has no modules of rsync: write {host}:{rest}"
    return ""
