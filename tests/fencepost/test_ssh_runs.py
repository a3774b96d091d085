"""Whole runs on hosts that are reached by SSH: the demo, what is left and undone when the harness is killed, hosts that
come and go meanwhile, and what `fencepost` says of hosts."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from cluster.places.ssh import estates
from tests import ssh_hosts
from tests.docker_engine import until
from tests.fencepost.test_docker_runs import LASTING, actions, shortened
from tests.fencepost.test_runs import ROOT, finish, history_has, start
from tests.ssh_hosts import Lab

#: A loaded machine takes its time.
SECONDS = 240


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with ssh_hosts.lab(tmp_path_factory.mktemp("hosts"), 5) as made:
        yield made


@pytest.fixture
def hosts(lab: Lab, tmp_path: Path) -> Iterator[Path]:
    """A hosts file; nothing is left on the hosts afterwards."""
    yield lab.hosts_file(tmp_path / "hosts.yaml")
    assert lab.all_left() == []
    assert estates.find() == []


def run_demo(tmp_path: Path, hosts: Path, *, whole: bool) -> None:
    scenario = yaml.safe_load((ROOT / "workloads" / "scenarios" / "demo.yaml").read_text())
    if not whole:
        scenario = shortened(ROOT / "workloads" / "scenarios" / "demo.yaml")
    (tmp_path / "demo.yaml").write_text(yaml.safe_dump(scenario))
    process = start("run", "demo.yaml", "--place", "ssh", "--hosts", hosts, "--json", cwd=tmp_path)
    code, stdout, stderr = finish(process, SECONDS)
    document = json.loads(stdout)
    assert (code, document["verdict"]) == (0, "valid"), stderr
    assert document["coverage"]["faults"] == len(scenario["nemesis"])
    folder = (tmp_path / document["run"]["folder"]).resolve()
    for action in ("injected", "healed"):
        told = [value["evidence"] for value in actions(folder) if value["action"] == action]
        assert len(told) == len(scenario["nemesis"])
        assert not [evidence for evidence in told if "not shown" in evidence or "no probe passed" in evidence]
    assert {path.name for path in (folder / "nodes").iterdir() if path.is_dir()} == {"n1", "n2", "n3", "n4", "n5"}
    for node in ("n1", "n2", "n3", "n4", "n5"):
        assert "event=started" in (folder / "nodes" / node / "node.log").read_text()
        assert "filtering with nft" in (folder / "nodes" / node / "agent.log").read_text()
        assert any((folder / "nodes" / node / "data").iterdir())


def test_the_demo_is_valid_on_hosts_and_every_fault_has_evidence(tmp_path: Path, hosts: Path) -> None:
    run_demo(tmp_path, hosts, whole=False)


@pytest.mark.slow
def test_the_whole_demo_is_valid_on_hosts(tmp_path: Path, hosts: Path) -> None:
    run_demo(tmp_path, hosts, whole=True)


class Lasting:
    """A run whose three faults last for a minute: a cut between n1 and n2, n1 paused, n3 killed."""

    def __init__(self, folder: Path, hosts: Path) -> None:
        self.cwd = folder
        (folder / "s.yaml").write_text(LASTING.replace("place: docker", f"place: ssh\nhosts: {hosts.name}"))
        self.process: subprocess.Popen[str] = start("run", "s.yaml", "--json", cwd=folder)

    def until_in_effect(self) -> None:
        kinds = ("partition", "pause", "kill")
        until(
            lambda: (
                all(history_has(self.cwd, f'"{kind}"', '"injected"') for kind in kinds)
                or self.process.poll() is not None
            ),
            "three faults",
            SECONDS,
        )
        assert self.process.poll() is None, self.process.communicate()

    @property
    def folder(self) -> Path:
        return (self.cwd / "store" / "latest").resolve()

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def heal(self, *more: str) -> tuple[int, str, str]:
        return finish(start("heal", *more, cwd=self.cwd), SECONDS)


@pytest.fixture
def lasting(tmp_path: Path, hosts: Path) -> Iterator[Lasting]:
    run = Lasting(tmp_path, hosts)
    try:
        run.until_in_effect()
        yield run
    finally:
        run.kill()
        for estate in estates.find():
            estates.remove(estate)


def lose_connections(lasting: Lasting, lab: Lab) -> None:
    """The run goes on, and its history says so."""
    for number in range(3):
        lab.drop_connections(number)
    until(lambda: history_has(lasting.cwd, '"place"', "was lost, and made again within"), "it is told", 60)
    assert lasting.process.poll() is None


@pytest.mark.slow
def test_heal_undoes_what_a_killed_harness_left_and_says_where_it_could_not(
    lasting: Lasting, lab: Lab, hosts: Path
) -> None:
    """One host is started again before, one is down at first. All connections were lost in the middle of the run."""
    lose_connections(lasting, lab)
    code, _, stderr = lasting.heal()
    assert code == 254
    assert f"its harness is alive (process {lasting.process.pid}) and heals what it does by itself" in stderr
    lasting.kill()
    assert lab.left(0)
    until(lambda: "elements" not in lab.run(1, "nft list ruleset"), "the cut ends by itself", 30)
    lab.restart(0)
    lab.containers[1].stop(timeout=1)
    try:
        code, stdout, _ = lasting.heal("--json")
        assert code == 255
        document = json.loads(stdout)
        (failed,) = document["failed"]
        addresses = ", ".join(f"n{number} on {host.address}" for number, host in enumerate(lab.hosts[:3], 1))
        assert failed.startswith(f"a cluster on 3 hosts ({addresses}) of {lasting.folder}: n2: root@")
        assert "can't be reached: " in failed
        assert "nothing is left of n1, n3" in failed
        assert document["healed"] == []
        assert lab.left(0) == lab.left(2) == []
    finally:
        lab.containers[1].start()
    lab.await_sshd(1)
    code, stdout, stderr = finish(start("clean", "--hosts", hosts, "--json", cwd=lasting.cwd), SECONDS)
    assert code == 0, stderr
    assert [line for line in json.loads(stdout)["removed"] if str(lasting.folder) in line]
    assert lab.all_left() == []
    for node in ("n1", "n2", "n3"):
        assert "event=started" in (lasting.folder / "nodes" / node / "node.log").read_text()
        assert any((lasting.folder / "nodes" / node / "data").iterdir())
    code, stdout, stderr = lasting.heal("--json")
    assert code == 0, stderr
    document = json.loads(stdout)
    assert document["healed"] == ["f1", "f2", "f3"]
    assert document["removed"] == document["failed"] == []


@pytest.mark.slow
def test_a_run_whose_connections_were_lost_heals_by_itself(lasting: Lasting, lab: Lab) -> None:
    lose_connections(lasting, lab)
    lasting.process.terminate()
    code, stdout, stderr = finish(lasting.process, SECONDS)
    document = json.loads(stdout)
    assert document["run"]["failure"] is None, stderr
    assert code == 2, "an interrupted run has no verdict"
    told = [value for value in actions(lasting.folder) if value["action"] == "healed"]
    assert len(told) == 3
    assert not [value for value in told if "no probe passed" in value["evidence"]]


def test_doctor_tells_of_each_host(lab: Lab, hosts: Path, tmp_path: Path) -> None:
    code, stdout, stderr = finish(start("doctor", "--hosts", hosts, "--json", cwd=tmp_path), SECONDS)
    assert code == 0, stderr
    checks = json.loads(stdout)["checks"]
    assert [check["ok"] for check in checks if check["name"] == "paramiko"] == [True]
    told = [check for check in checks if check["name"] == "host"]
    assert len(told) == 5
    assert all(check["ok"] for check in told)
    for check, host in zip(told, lab.hosts, strict=True):
        assert check["says"].startswith(f"{host}: Python 3.")
        assert "; root; packet filter: nft" in check["says"]


@pytest.mark.slow
def test_unknown_hosts_are_refused_before_the_run_and_taken_with_the_flag(
    lab: Lab, hosts: Path, tmp_path: Path
) -> None:
    known = tmp_path / "known_hosts"
    lab.hosts_file(hosts, known_hosts=known)
    (tmp_path / "s.yaml").write_text(
        "nodes: 2\ntime_limit: 2s\nworkload: {kind: mutex, clients: 2, keys: 1, rate: 20/s, lease: 1s, hold: 5ms}\n"
    )
    command = ("run", "s.yaml", "--place", "ssh", "--hosts", hosts, "--json")
    code, stdout, stderr = finish(start(*command, cwd=tmp_path), SECONDS)
    assert code == 255
    assert "is unknown (ssh-ed25519 SHA256:" in json.loads(stdout)["run"]["failure"]
    assert "--accept-new-host-keys" in stderr
    assert not known.exists()
    code, _, stderr = finish(start(*command, "--accept-new-host-keys", cwd=tmp_path), SECONDS)
    assert code == 0, stderr
    assert len(known.read_text().splitlines()) == 5


def test_a_run_without_hosts_is_refused_with_what_would_do(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(LASTING)
    code, _, stderr = finish(start("run", "s.yaml", "--place", "ssh", cwd=tmp_path))
    assert code == 254
    assert "s.yaml: hosts: found nothing; expected the path of a file that names hosts for the place ssh" in stderr
