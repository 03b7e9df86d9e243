"""The second try of tools/test runs exactly the failed tests, and hides no failure.

Each test copies tools/test into a small project whose other tools are stubs.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"
CMAKE = """
cmake_minimum_required(VERSION 3.25)
project(few NONE)  # no test is compiled
enable_testing()
file(WRITE ${CMAKE_BINARY_DIR}/sim "#!/bin/sh\\n")
file(CHMOD ${CMAKE_BINARY_DIR}/sim PERMISSIONS OWNER_READ OWNER_EXECUTE)
"""
#: `quick` leaves out a test of this name.
SLOW = "sim"
ALWAYS_FAILS = "exit 1"
FAILS_AT_FIRST = "test -e again || { touch again; exit 1; }"


def script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copytree(TOOLS, tmp_path / "tools", ignore=lambda _, names: set(names) - {"test"})
    lints = [f"tools/lint/{path.name}" for path in (TOOLS / "lint").iterdir() if path.is_file()]
    for name in ("tools/setup", "tools/lab", *lints, ".venv/bin/ruff", ".venv/bin/mypy"):
        script(tmp_path / name, "true")
    for name in ("clang-format", "codespell", "git"):
        script(tmp_path / ".venv/bin" / name, "true")
    script(tmp_path / ".venv/bin/python", "true")
    for name in ("build", "datapath", "ebpf", "tests"):
        (tmp_path / name).mkdir()
    (tmp_path / "datapath/CMakeLists.txt").write_text(CMAKE)
    return tmp_path


def run(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [project / "tools/test", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def c_tests(project: Path, **commands: str) -> subprocess.CompletedProcess[str]:
    """Runs `tools/test quick` with these C tests, each a shell command."""
    with (project / "datapath/CMakeLists.txt").open("a") as cmake:
        for name, command in commands.items():
            cmake.write(f"add_test(NAME {name} COMMAND sh -c [[{command}]])\n")
            cmake.write(f"set_tests_properties({name} PROPERTIES SKIP_RETURN_CODE 77)\n")
    return run(project, "quick")


def python_tests(project: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Runs `tools/test quick` with these Python tests, which run in parallel."""
    (project / "tests/test_one.py").write_text(f"import os\nfrom pathlib import Path\n{text}")
    (project / "tests/test_two.py").write_text("def test_passes(): pass\n")
    # The files of the quick step do not exist here.
    script(
        project / ".venv/bin/python",
        f'for word; do shift; case $word in tests/*|--ignore=*) ;; *) set -- "$@" "$word" ;; '
        "esac; done\nexport PYTEST_DISABLE_PLUGIN_AUTOLOAD=1\n"
        f'exec {shlex.quote(sys.executable)} "$@" -p xdist tests',
    )
    return c_tests(project, passes="true")


@pytest.mark.parametrize(
    "command",
    [
        ALWAYS_FAILS,
        f"test -e again && exit 77; {FAILS_AT_FIRST}",
        "test -e again || { touch again; kill -SEGV $$; }",
        "test -e again || { touch again; sh -c 'kill -SEGV $$'; exit $?; }",
        "test -e again || { touch again; sh -c 'kill -ABRT $$' | cat; exit 1; }",
        "test -e again || { touch again; echo ERROR: AddressSanitizer: stack-overflow; exit 1; }",
    ],
    ids=["again", "skipped then", "crashed", "crashed in a shell", "aborted", "sanitizer"],
)
def test_quick__a_c_test_that_fails_is_red(project: Path, command: str) -> None:
    # Without the excluded test in front, CTest's numbers of these two are one lower.
    done = c_tests(project, **{SLOW: "exit 1", "fails": command, "passes": "true"})
    assert done.returncode == 1, done.stdout
    assert "FAILED C tests, gcc" in done.stdout
    assert "AGAIN" not in done.stdout


def test_quick__a_c_test_that_fails_once_is_run_again(project: Path) -> None:
    done = c_tests(project, **{SLOW: "exit 1", "fails": FAILS_AT_FIRST, "passes": "true"})
    assert done.returncode == 0, done.stdout
    assert "AGAIN  1 of the C tests, gcc failed at first, and passed alone" in done.stdout
    assert done.stdout.count(": passes ") == 1


def test_quick__skipped_tests_are_counted(project: Path) -> None:
    done = c_tests(project, passes="true", one="exit 77", two="exit 77")
    assert done.returncode == 0, done.stdout
    assert re.search(r"^ok +C tests, gcc, the quick ones +\d+ s, 2 skipped$", done.stdout, re.M)


def test_quick__no_c_tests_are_red(project: Path) -> None:
    assert c_tests(project).returncode == 1


def test_quick__clang_format_that_does_not_run_is_red(project: Path) -> None:
    script(project / ".venv/bin/clang-format", "echo cannot run >&2; exit 1")
    (project / "datapath/one.c").touch()
    done = c_tests(project, passes="true")
    assert done.returncode == 1, done.stdout
    assert "FAILED clang-format" in done.stdout
    assert "cannot run" in done.stdout


FIRST = "not os.path.exists('again') and not Path('again').touch()"


@pytest.mark.parametrize(
    "text",
    [
        "def test_fails(): assert False",
        "def test_crashes(): {FIRST} and os._exit(1)\n"
        "def test_fails(): assert os.path.exists('too') or Path('too').touch()",
        "import pytest\n"
        "def test_skips():\n    assert not ({FIRST})\n    pytest.skip('not any more')",
        "assert not ({FIRST})\ndef test_passes(): pass",
    ],
    ids=["again", "crashed", "skipped then", "not collected"],
)
def test_quick__a_python_test_that_fails_is_red(project: Path, text: str) -> None:
    done = python_tests(project, text.replace("{FIRST}", FIRST))
    assert done.returncode == 1, done.stdout
    assert "FAILED pytest" in done.stdout


def test_quick__a_python_test_that_fails_once_is_run_again(project: Path) -> None:
    done = python_tests(project, f"def test_fails(): assert not ({FIRST})")
    assert done.returncode == 0, done.stdout
    assert "AGAIN  1 of the Python tests failed at first, and passed alone" in done.stdout


@pytest.mark.parametrize(("command", "status"), [("true", 0), (FAILS_AT_FIRST, 1)])
def test_all__steps_that_run_ahead_count(project: Path, command: str, status: int) -> None:
    """A test in virtual time does not depend on other processes, so it gets no second try."""
    script(project / ".venv/bin/python", "sleep 1")
    script(project / "tests/spin/run", "true")
    with (project / "datapath/CMakeLists.txt").open("a") as cmake:
        cmake.write("add_custom_target(tidy)\nadd_test(NAME test_other COMMAND true)\n")
        cmake.write("file(COPY_FILE ${CMAKE_BINARY_DIR}/sim ${CMAKE_BINARY_DIR}/explore)\n")
        cmake.write(f"add_test(NAME test_sim_one COMMAND sh -c [[{command}]])\n")
    done = run(project)
    assert done.returncode == status, done.stdout
    result = "FAILED" if status else "ok"
    assert len(re.findall(rf"^{result} +C tests in virtual time, ", done.stdout, re.M)) == 2
    assert done.stdout.count(": test_other ...") == 2


@pytest.mark.parametrize(("times", "status"), [(0, 0), (1, 0), (2, 1)])
def test_all__machines_that_fail_beside_the_c_tests_run_again_alone(
    project: Path, times: int, status: int
) -> None:
    fails = f"tests/machines/*) echo >>failed; test $(wc -l <failed) -gt {times} || exit 1"
    script(project / ".venv/bin/python", f"for word; do case $word in {fails};; esac; done")
    script(project / "tests/spin/run", "true")
    with (project / "datapath/CMakeLists.txt").open("a") as cmake:
        cmake.write("add_custom_target(tidy)\nadd_test(NAME test_other COMMAND true)\n")
        cmake.write("add_test(NAME test_sim_one COMMAND true)\n")
        cmake.write("file(COPY_FILE ${CMAKE_BINARY_DIR}/sim ${CMAKE_BINARY_DIR}/explore)\n")
    done = run(project)
    assert done.returncode == status, done.stdout
    assert ("AGAIN  the emulated machines" in done.stdout) is (times > 0)
    assert f"{'FAILED' if status else 'ok    '} a few emulated machines" in done.stdout
