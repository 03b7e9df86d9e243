"""Completion in shells: the script, hosts, interfaces; tests/system completes paths."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from careful.cli.main import run

CONFIG = '[nodes]\nh2 = "10.0.0.2"\nh3 = "10.0.0.3"\nother = "10.0.0.4"\n'


@pytest.fixture
def complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Returns bash's words for the completion of the last word."""
    config = tmp_path / "careful.toml"
    config.write_text(CONFIG)
    monkeypatch.setenv("CAREFUL_CONFIG", str(config))
    monkeypatch.setenv("_CAREFULCTL_COMPLETE", "bash_complete")

    def told(*words: str) -> list[str]:
        monkeypatch.setenv("COMP_WORDS", " ".join(["carefulctl", *words]))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        assert run() == 0
        return capsys.readouterr().out.splitlines()

    return told


def test_complete__hosts(complete) -> None:
    assert complete("measure", "pathchar", "h") == ["plain,h2", "plain,h3"]
    assert complete("tune", "show", "eth1", "--peer", "o") == ["plain,other"]
    assert complete("get", "h") == ["plain,h2:", "plain,h3:"]
    assert complete("get", "") == ["plain,h2:", "plain,h3:", "plain,other:"]
    assert complete("get", "x") == ["file,x"]
    assert complete("put", "") == ["file,"]
    assert complete("put", "file", "h2") == ["plain,h2:"]


def test_complete__interfaces_and_commands(complete, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.if_nameindex", lambda: [(1, "lo"), (2, "eth1"), (3, "eth2")])
    for command in ("up", "down", "status", "doctor", "tune show", "trace stages"):
        assert complete(*command.split(), "e") == ["plain,eth1", "plain,eth2"]
    assert complete("measure", "log") == ["plain,logp"]
    assert "plain,files" in complete("help", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion__prints_a_script(
    shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHELL", f"/usr/bin/{shell}")
    assert run(["completion"]) == 0
    script = capsys.readouterr().out
    assert f"_CAREFULCTL_COMPLETE={shell}_complete" in script
    monkeypatch.setenv("SHELL", "/bin/sh")
    assert run(["completion"]) == 0
    assert "bash_complete" in capsys.readouterr().out
    assert run(["completion", "csh"]) == 2
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed: it does not read the script")
    assert subprocess.run([shell, "-n"], input=script, text=True).returncode == 0


def test_completion__bash_types_no_blank_after_a_host(tmp_path: Path) -> None:
    """bash itself completes typed words."""
    if not shutil.which("bash"):
        pytest.skip("bash is not installed")
    (tmp_path / "careful.toml").write_text(CONFIG)
    program = shlex.quote(str(Path(sys.executable).parent / "carefulctl"))
    script = f"""
        compopt() {{ echo "compopt" "$@"; }}
        complete() {{ :; }}
        eval "$({program} completion bash)"
        COMP_WORDS=(carefulctl get h2) COMP_CWORD=2
        _carefulctl_completion {program}
        echo "${{COMPREPLY[*]}}"
        COMP_WORDS=(carefulctl stat) COMP_CWORD=1
        _carefulctl_completion {program}
        echo "${{COMPREPLY[*]}}"
    """
    env = {"CAREFUL_CONFIG": str(tmp_path / "careful.toml"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=env)
    assert (done.stdout, done.stderr) == ("compopt -o nospace\nh2:\nstatus\n", "")


NAMES = ["$(touch ran)", "`touch ran`", "a b", "x;touch ran", "it's", '"q"', "plain", "dir/", "~"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
@pytest.mark.parametrize("name", NAMES)
def test_bash__quotes_a_servers_names(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The inserted text is one word, and the shell runs nothing of it."""
    assert run(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    said = tmp_path / "said"
    said.write_text(f"plain,{name}\n")
    script += f"""
told() {{ cat {said}; }}
COMP_WORDS=(told get h2:); COMP_CWORD=2
compopt() {{ :; }}
_carefulctl_completion told 2>/dev/null
eval "set -- ${{COMPREPLY[0]}}"
printf '%s\\n' "$#" "$1"
"""
    done = subprocess.run(
        ["bash", "--norc"], input=script, text=True, cwd=tmp_path, capture_output=True
    )
    assert done.stdout.split("\n")[:2] == ["1", name]
    assert not (tmp_path / "ran").exists()


def _told(folder: Path, script: str, lines: str) -> dict[str, str]:
    """Stores the completion's script. Returns an environment whose carefulctl prints the lines."""
    (folder / "said").write_text(lines)
    program = folder / "carefulctl"
    program.write_text(f"#!/bin/sh\ncat {folder / 'said'}\n")
    program.chmod(0o755)
    (folder / "script").write_text(script)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(folder)}


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh here")
@pytest.mark.parametrize("name", NAMES)
def test_zsh__gets_a_servers_names_unchanged(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name is one match, and is not run; compadd without -Q quotes it when inserting."""
    assert run(["completion", "zsh"]) == 0
    env = _told(tmp_path, capsys.readouterr().out, f"plain\nh2:{name}\n_\n")
    script = """
compdef() { : }
compadd() { print -rl -- $#completions $completions; [[ $* != *Q* ]] || print quoted; }
source ./script
words=(carefulctl get h2:) CURRENT=3
_carefulctl_completion
"""
    done = subprocess.run(
        ["zsh", "-f"], input=script, text=True, cwd=tmp_path, env=env, capture_output=True
    )
    assert done.stdout.splitlines() == ["1", f"h2:{name}"], done.stderr
    assert not (tmp_path / "ran").exists()


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish here")
@pytest.mark.parametrize("name", NAMES)
def test_fish__gets_a_servers_names_unchanged(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name is one match, and is not run; fish quotes it when inserting."""
    assert run(["completion", "fish"]) == 0
    env = _told(tmp_path, capsys.readouterr().out, f"plain,h2:{name}\n")
    script = "source ./script; complete --do-complete 'carefulctl get h2:'"
    done = subprocess.run(
        ["fish", "--no-config", "-c", script],
        text=True,
        cwd=tmp_path,
        env=env,
        capture_output=True,
    )
    assert done.stdout.splitlines() == [f"h2:{name}"], done.stderr
    assert not (tmp_path / "ran").exists()
