"""Hosts files: what they say, and what is answered to mistakes."""

from __future__ import annotations

import getpass
from pathlib import Path

import pytest

from cluster.places.ssh.hosts import Host, known_hosts
from fencepost import hosts_file, scenario
from fencepost.scenario import ScenarioError
from tests.docs.markdown import DOCS, blocks, first_column

SCENARIO = """
place: ssh
{more}
time_limit: 2s
workload: {{kind: mutex, clients: 1, keys: 1, rate: 10/s, lease: 1s, hold: 5ms}}
"""


def load(tmp_path: Path, text: str) -> tuple[Host, ...]:
    (tmp_path / "hosts.yaml").write_text(text)
    return hosts_file.load(tmp_path / "hosts.yaml")


def test_a_host_can_be_an_address_alone(tmp_path: Path) -> None:
    (host,) = load(tmp_path, "hosts: [192.0.2.1]")
    assert host == Host("192.0.2.1", getpass.getuser(), "192.0.2.1", known_hosts=known_hosts())
    assert str(host) == f"{getpass.getuser()}@192.0.2.1"


def test_what_is_said_for_all_holds_unless_one_says_something_else(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("")
    text = (
        "user: admin\nkey: key\nport: 2222\nsudo: true\nknown_hosts: known\n"
        "hosts:\n  - 192.0.2.1\n"
        "  - {address: 192.0.2.2, port: 22, user: root, sudo: false, node_address: 10.0.0.2, node_port: 7500,"
        " python: python3.12, folder: /srv/fencepost}\n"
    )
    first, second = load(tmp_path, text)
    shared = {"key": tmp_path / "key", "known_hosts": tmp_path / "known"}
    assert first == Host("192.0.2.1", "admin", "192.0.2.1", 2222, sudo=True, **shared)  # type: ignore[arg-type]
    assert second == Host(
        "192.0.2.2", "root", "10.0.0.2", 22, tmp_path / "key", False, 7500, "python3.12", "/srv/fencepost",
        tmp_path / "known",
    )  # fmt: skip
    assert str(first) == "admin@192.0.2.1:2222"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("hosts: []", ":1: hosts: found an empty list; expected at least one host"),
        ("user: me", ": hosts: found nothing; expected a list of hosts"),
        ("- 192.0.2.1", ": found a list; expected fields: hosts, port, user"),
        ("hosts: [192.0.2.1]\nusr: me", ":2: usr: found an unknown field; expected one of hosts, port, user"),
        ("hosts: [192.0.2.1, 192.0.2.1]", ":1: hosts[1]: found the address 192.0.2.1 of hosts[0] again; expected a"),
        (
            "hosts:\n  - 192.0.2.1\n  - {address: 192.0.2.2, node_address: 192.0.2.1}",
            ":3: hosts[1]: found the node_address 192.0.2.1 of hosts[0] again; expected a host for each node",
        ),
        ("hosts: [127.0.0.1]", ":1: hosts[0]: found 127.0.0.1, which is no address of one host; expected node_address"),
        ("hosts: ['-oProxyCommand=x']", ":1: hosts[0]: found '-oProxyCommand=x'; expected a name or an address"),
        ("hosts: [no.such.host.invalid]", "found 'no.such.host.invalid', which has no address; expected a name that"),
        ("hosts: [{port: 22}]", ":1: hosts[0].address: found nothing; expected a name or an address"),
        ("hosts: [{address: 192.0.2.1, node_address: lab1}]", "node_address: found 'lab1'; expected an IP address"),
        ("hosts: [192.0.2.1]\nport: 70000", ":2: port: found '70000'; expected a whole number from 1 to 65535"),
        ("hosts: [192.0.2.1]\nsudo: perhaps", ":2: sudo: found 'perhaps'; expected true or false"),
        ("hosts: [192.0.2.1]\nuser: a b", ":2: user: found 'a b'; expected the name of a user"),
        ("hosts: [192.0.2.1]\nkey: nowhere", "nowhere', where there is no file; expected the file of a private key"),
        ("hosts: [192.0.2.1]\npython: '-c evil'", ":2: python: found '-c evil'; expected a command"),
    ],
)
def test_mistakes_are_answered_with_what_would_do(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ScenarioError) as refusal:
        load(tmp_path, text)
    assert complaint in str(refusal.value)


def test_a_scenario_names_its_hosts_from_its_own_folder(tmp_path: Path) -> None:
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "hosts.yaml").write_text("hosts: [192.0.2.1, 192.0.2.2]")
    path = tmp_path / "s.yaml"
    path.write_text(SCENARIO.format(more="hosts: lab/hosts.yaml\nnodes: 2"))
    loaded = scenario.load(path)
    assert loaded.hosts == str(tmp_path / "lab" / "hosts.yaml")
    assert [host.address for host in hosts_file.of(loaded)] == ["192.0.2.1", "192.0.2.2"]
    path.write_text(scenario.dump(loaded))
    assert scenario.load(path) == loaded
    assert hosts_file.of(scenario.override(loaded, place="local")) == (), "other places don't look at it"


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ("", "s.yaml: hosts: found nothing; expected the path of a file that names hosts for the place ssh"),
        ("hosts: nowhere.yaml", "nowhere.yaml: found no such file; expected the path of a hosts file"),
        ("hosts: hosts.yaml", "s.yaml: nodes: found 5 nodes on 1 host ("),
    ],
)
def test_a_place_on_hosts_is_refused_without_enough_of_them(tmp_path: Path, more: str, complaint: str) -> None:
    (tmp_path / "hosts.yaml").write_text("hosts: [192.0.2.1]")
    (tmp_path / "s.yaml").write_text(SCENARIO.format(more=more))
    with pytest.raises(ScenarioError) as refusal:
        scenario.load(tmp_path / "s.yaml")
    assert complaint in str(refusal.value)


def test_the_page_names_every_field_and_shows_a_file_that_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = DOCS / "ssh.md"
    assert sorted(first_column(page, "The hosts file")) == sorted({*hosts_file.FIELDS, *hosts_file.HOST_FIELDS})
    (block,) = blocks(page, "yaml hosts")
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "lab").write_text("")
    found = load(tmp_path, block.text)
    assert [str(host) for host in found] == ["admin@10.0.0.11", "admin@10.0.0.12:2222", "root@lab3.example.org"]
