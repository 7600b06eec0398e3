"""packaging/check: the light tools, the larger ones where they are asked for, and its last line."""

import shutil
import subprocess
import tomllib

import pytest
from fake_machine import ROOT, TOOLS, Stage, interrupt

pytestmark = pytest.mark.slow

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PYPROJECT["project"]["optional-dependencies"]
LARGER = [f"install {tool}" for tool in EXTRAS["test-all"]]
UNSLOW = ["-m", "not slow"]
AGAIN = "To try again: sh packaging/check --all"

APT = r"""#!/bin/sh
echo "apt-get $*" >>"$STAGE/calls"
[ "$1" = update ] || { printf '#!/bin/sh\n' >"$STAGE/bin/chromium"; chmod +x "$STAGE/bin/chromium"; }
"""
APT_CALLS = ["apt-get update", "apt-get install -y --no-install-recommends chromium"]
PLAYWRIGHT_CALL = "playwright install --no-shell chromium"


@pytest.fixture
def stage(tmp_path):
    return Stage(tmp_path)


@pytest.fixture
def bare(stage):
    """A machine without the larger tools: only what is in its own folder and the plainest of tools are on its path."""
    (stage.bin / "chromium").unlink()
    for tool in TOOLS:
        stage.dist(tool).rmdir()
    for tool in ("sh", "cat", "cksum", "dirname", "mkdir", "mv", "rm", "cp", "chmod", "sed", "tail", "grep", "touch"):
        (stage.bin / tool).symlink_to(shutil.which(tool))
    stage.command("id", "#!/bin/sh\necho 0\n")
    stage.command("apt-get", APT)
    (stage.path / "debian_version").touch()
    stage.environment |= {"PATH": str(stage.bin), "DEBIAN": str(stage.path / "debian_version")}
    return stage


def everything(stage: Stage, by: str) -> subprocess.CompletedProcess:
    """A check that installs all there is: told so ``by`` the flag, or by CI."""
    if by == "CI":
        stage.environment["CI"] = "true"
    return stage.run("check", *["--all"] * (by == "--all"))


def beyond_light(stage: Stage) -> list[str]:
    """What was asked for since the last look, after the light tools."""
    calls = stage.calls()
    light = f"install -e {stage.project}[test]"
    return calls[calls.index(light) + 1 :] if light in calls else calls


# --- What every check does


def test_check_adds_the_tools_once_and_hands_its_arguments_to_pytest(stage):
    done = stage.run("check", "-k", "a or b")
    assert done.stdout == "".join(f"pytest [{a}]\n" for a in (*UNSLOW, "-k", "a or b"))
    assert stage.calls()[-1] == f"install -e {stage.project}[test]"
    assert stage.run("check", "--slow").stderr == ""
    assert stage.run("start").stderr == ""
    assert stage.calls() == []


def test_a_check_without_a_network_leaves_what_worked(stage):
    stage.run("start")
    (stage.path / "broken").touch()
    assert stage.run("check").returncode == 1
    stage.calls()
    assert stage.run("start", "x").stdout == "localctx [x]\n"
    assert stage.calls() == []


@pytest.mark.parametrize("before", ["start", "check"])
def test_a_check_stopped_while_adding_tools_leaves_nothing_half_made(stage, before):
    stage.run(before)
    stage.calls()
    interrupt(stage, "check", "--all")
    assert stage.run("start", "x").stdout == "localctx [x]\n"
    assert stage.calls()[0] == "venv"


def test_its_own_flags_may_stand_anywhere(stage):
    done = stage.run("check", "-x", "--quick", "--all", "tests/a b.py")
    assert done.stdout == "".join(f"pytest [{a}]\n" for a in ("-m", "not process and not slow", "-x", "tests/a b.py"))


@pytest.mark.parametrize(
    ("flags", "marks", "last"),
    [
        ([], UNSLOW, "left out were the slow tests. To add them: sh packaging/check --slow"),
        (
            ["--quick"],
            ["-m", "not process and not slow"],
            "left out were the tests that are not quick. To add them: sh packaging/check --slow",
        ),
        (["--slow"], [], None),
        (["--all"], [], None),
    ],
)
def test_slow_tests_run_if_asked_for_and_the_last_line_names_them_otherwise(stage, flags, marks, last):
    stage.run("check")
    done = stage.run("check", *flags)
    assert done.stdout == "".join(f"pytest [{a}]\n" for a in marks)
    assert [line for line in done.stderr.splitlines() if "left out" in line] == [f"localctx: {last}"] * bool(last)


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_is_told_and_nothing_is_installed(stage, flag):
    done = stage.run("check", "-k", flag)
    assert (done.returncode, done.stderr, stage.calls()) == (0, "", [])
    assert done.stdout.startswith("usage: sh packaging/check [--quick] [--slow] [--all] [PYTEST ARGUMENTS]\n")
    assert not stage.venv.exists()


# --- What takes more than Python and a network


def test_the_light_tools_need_no_compiler_and_the_extras_agree():
    light, larger = EXTRAS["test"], EXTRAS["test-all"]
    assert not [tool for tool in light if tool.startswith(tuple(TOOLS))]
    assert {*EXTRAS["ocr"], *EXTRAS["ray"]} < {*larger}
    assert {*EXTRAS["gpu"]} < {*light}


def test_on_a_bare_machine_only_light_tools_come_and_the_last_line_says_what_was_left_out(bare):
    bare.environment["EXIT"] = "3"
    done = bare.run("check", "-q")
    assert (done.returncode, done.stdout) == (3, "pytest [-m]\npytest [not slow]\npytest [-q]\n")
    assert beyond_light(bare) == []
    names = ", ".join([*TOOLS, "Chromium"])
    told = (
        f"localctx: left out were the slow tests and the tests that need {names}. To add them: sh packaging/check --all"
    )
    assert done.stderr.splitlines()[-1] == told
    assert bare.run("check").stderr.splitlines() == [told]


def test_what_is_present_is_used_and_not_named(bare):
    (bare.bin / "chromium").touch(0o755)
    bare.dist("ray").mkdir()
    last = bare.run("check").stderr.splitlines()[-1]
    assert "Chromium" not in last
    assert "ray" not in last
    assert "llama-cpp-python" in last


@pytest.mark.parametrize("by", ["--all", "CI"])
def test_all_and_ci_install_each_by_itself_and_once(bare, by):
    done = everything(bare, by)
    assert (done.returncode, done.stdout) == (0, "")
    assert beyond_light(bare) == [*LARGER, *APT_CALLS]
    assert "left out" not in done.stderr
    again = everything(bare, by)
    assert (again.returncode, again.stderr, bare.calls()) == (0, "", [])
    assert bare.run("check", "--slow").stderr == ""


@pytest.mark.parametrize("by", ["--all", "CI"])
def test_one_that_cannot_be_had_takes_nothing_from_the_others(bare, by):
    (bare.path / "no llama_cpp_python").touch()
    bare.environment["EXIT"] = "3"
    done = everything(bare, by)
    assert done.returncode == 3
    assert beyond_light(bare) == [*LARGER, *APT_CALLS]
    told = "localctx: left out were the tests that need llama-cpp-python, which could not be installed."
    assert done.stderr.splitlines()[-1] == f"{told} {AGAIN} (log: {bare.venv}/install.log)"
    assert "pip could not install llama-cpp-python[server]" in done.stderr
    assert bare.run("start", "x").stdout == "localctx [x]\n"
    assert bare.calls() == []

    (bare.path / "no llama_cpp_python").unlink()
    assert "left out" not in everything(bare, by).stderr
    assert beyond_light(bare) == LARGER


def test_a_changed_pyproject_brings_the_larger_tools_up_to_date_where_they_are_asked_for(bare):
    bare.run("check", "--all")
    bare.calls()
    with (bare.project / "pyproject.toml").open("a") as file:
        file.write("# one more dependency\n")
    bare.run("check")
    assert not [call for call in bare.calls() if call in LARGER]
    bare.run("check", "--all")
    assert bare.calls() == LARGER


# --- The browser


def test_where_apt_fails_playwright_is_asked(bare):
    bare.command("apt-get", "#!/bin/sh\nexit 100\n")
    (bare.path / "download").touch()
    assert "left out" not in bare.run("check", "--all").stderr
    assert bare.calls()[-1] == PLAYWRIGHT_CALL
    bare.run("check", "--all")
    assert bare.calls() == []


@pytest.mark.parametrize("who", ["a user", "another system"])
def test_nothing_is_installed_into_the_system_but_by_root_on_debian(bare, who):
    if who == "a user":
        bare.command("id", "#!/bin/sh\necho 1000\n")
    else:
        (bare.path / "debian_version").unlink()
    bare.run("check", "--all")
    assert beyond_light(bare) == [*LARGER, PLAYWRIGHT_CALL]


def test_where_no_chromium_can_be_had_it_is_told_and_the_check_goes_on(bare):
    bare.command("apt-get", "#!/bin/sh\nexit 100\n")
    done = everything(bare, "CI")
    assert (done.returncode, done.stdout) == (0, "")
    last = done.stderr.splitlines()[-1]
    assert last.startswith("localctx: left out were the tests that need Chromium, which could not be installed.")
    assert AGAIN in last


# --- CI


def test_ci_runs_check(bare):
    shutil.copytree(ROOT / ".ci", bare.project / ".ci")
    bare.environment |= {"EXIT": "5", "CI": "true"}
    for tool in ("env", "bash"):
        (bare.bin / tool).symlink_to(shutil.which(tool))
    assert subprocess.run([bare.project / ".ci" / "run"], env=bare.environment, capture_output=True).returncode == 5
    assert beyond_light(bare) == [*LARGER, *APT_CALLS]
