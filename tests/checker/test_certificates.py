"""Certificates prove every verdict to a verifier that shares no code with the checker, and nothing but the verdict."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import checker
from checker import sweep, verifier
from checker.certificate import certify, seal
from checker.history import Event, History
from checker.verifier import Certificate, Rejected
from tests.checker import exhaustive, generate, script
from tests.checker.compare import history_of
from tests.checker.scripts import SCRIPTS

SAMPLE = 500
TAMPERINGS = 1000


def write(path: Path, events: list[Event]) -> Path:
    path.write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in events))
    return path


def proves(history: Path, certificate: Certificate) -> str | None:
    try:
        return verifier.verify(history, certificate)
    except Rejected:
        return None


def test_every_verdict_can_be_proved(tmp_path: Path) -> None:
    named = whole = 0
    for number in range(SAMPLE):
        events = history_of(21, number, operations=12 if number % 4 else 40)
        if not events:
            continue
        path = write(tmp_path / "history.jsonl", events)
        certificate = certify(path)
        fits = all(sweep.decide(operations) is None for operations in History.of(events).by_key.values())
        assert verifier.verify(path, certificate) == ("valid" if fits else "invalid")
        for contradiction in certificate.contradictions:
            assert len(contradiction.operations) <= 8
            assert contradiction.cycle
            named += bool(contradiction.operations)
            whole += not contradiction.operations
    assert named > 10 * whole > 0


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts(name: str, tmp_path: Path) -> None:
    events = script.events(SCRIPTS[name])
    path = write(tmp_path / "history.jsonl", events)
    assert verifier.verify(path, certify(path)) == ("valid" if exhaustive.linearizable(events) else "invalid")


def test_the_second_sweep_agrees_with_the_exhaustive_search() -> None:
    for number in range(SAMPLE):
        events = history_of(22, number)
        if events:
            keys = History.of(events).by_key.values()
            assert all(map(verifier.fits, keys)) == exhaustive.linearizable(events), number


def granted_twice(rng: random.Random) -> list[Event]:
    events = generate.valid(rng, operations=60)
    lost = next(e for e in events if e.type == "ok" and e.f == "acquire" and e.value)
    end = len(events)
    again = [
        msgspec.structs.replace(lost, index=end + i, time=events[-1].time, process=10**6, type=t, value=v)
        for i, (t, v) in enumerate([("invoke", None), ("ok", lost.value)])
    ]
    return [*events, *again]


#: Histories, and the rule of an edge by which they are refused.
TAMPERED: dict[str, tuple[Callable[[random.Random], list[Event]], str | None]] = {
    "valid": (lambda rng: generate.valid(rng, operations=60), None),
    "twice": (granted_twice, "once"),
    "forced": (lambda _: script.events(SCRIPTS["refused-while-free"]), "leave"),
    "counted": (lambda _: script.events(SCRIPTS["ghost-used-up-by-a-token"]), "counted"),
    "over all keys: grants": (lambda _: script.events("1 acquire a\n1 ok 2\n2 acquire b\n2 ok 1"), "grants"),
    "over all keys: once": (
        lambda _: script.events("1 acquire a\n1 ok 1\n2 acquire b\n2 info\n3 inspect b\n3 ok 1"),
        "once",
    ),
    "over all keys: counted": (
        lambda _: script.events("1 acquire b\n8 acquire b\n8 fail held\n9 acquire a\n7 inspect b\n7 ok 9\n9 ok 4"),
        "counted",
    ),
}


@pytest.mark.parametrize("kind", TAMPERED)
def test_whatever_is_changed_is_noticed(kind: str, tmp_path: Path) -> None:
    """1,000 random changes: none is accepted, and with a new seal none proves the opposite."""
    rng = random.Random(5)
    make, rule = TAMPERED[kind]
    path = write(tmp_path / "history.jsonl", make(rng))
    certificate = certify(path, tokens_span_keys=kind.startswith("over all keys"))
    verdict = "valid" if rule is None else "invalid"
    assert verifier.verify(path, certificate) == verdict
    assert rule is None or rule in {step.rule for one in certificate.contradictions for step in one.cycle}
    document = json.loads(msgspec.json.encode(certificate))
    still_proofs = 0
    for _ in range(TAMPERINGS):
        changed = _changed(rng, document)
        try:
            tampered = msgspec.json.decode(json.dumps(changed).encode(), type=Certificate)
        except msgspec.ValidationError:
            continue
        assert proves(path, tampered) is None
        resealed = proves(path, seal(tampered))
        assert resealed in (None, verdict)
        still_proofs += resealed is not None
    # Some other witness is often as good: a moment a little later, say.
    assert still_proofs < TAMPERINGS / 2


def _changed(rng: random.Random, document: Any) -> Any:
    """A copy with one value changed, dropped or doubled."""
    changed = json.loads(json.dumps(document))
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        items = node.items() if isinstance(node, dict) else enumerate(node)
        for name, value in list(items):
            places.append((node, name))
            if isinstance(value, dict | list):
                walk(value)

    walk(changed)
    while changed == document:
        node, name = rng.choice(places)
        value = node[name]
        match rng.randrange(4):
            case 0 if isinstance(value, int):
                node[name] = value + rng.choice([-3, -2, -1, 1, 2, 3])
            case 0 if isinstance(value, str):
                node[name] = rng.choice(["valid", "invalid", "a", "", value + "0", value[::-1]])
            case 1 if isinstance(node, list):
                node.insert(name, value)
            case 2:
                del node[name]
            case 3:
                node[name] = rng.choice([None, 0, [], {}, "valid"])
    return changed


def test_every_event_of_the_history_matters(tmp_path: Path) -> None:
    path = write(tmp_path / "history.jsonl", script.events(SCRIPTS["expired-then-granted"]))
    certificate = certify(path)
    path.write_bytes(path.read_bytes().replace(b'"time":0', b'"time":1', 1))
    with pytest.raises(Rejected, match="for another history, or the history was changed"):
        verifier.verify(path, certificate)


def claim(
    verdict: str, witnesses: dict[str, verifier.Witness], contradictions: list[verifier.Contradiction]
) -> Certificate:
    return Certificate(verifier.FORMAT, "linearizable", verdict, "", witnesses, contradictions, "", False)


def test_an_opposite_verdict_is_not_believed(tmp_path: Path) -> None:
    good = write(tmp_path / "good.jsonl", script.events("1 acquire a\n1 ok 1\n2 acquire a\n2 fail held"))
    history = checker.read(good)
    for contradiction in ([], [0], [0, 2], [2]):
        with pytest.raises(Rejected):
            verifier.verify_claims(history, claim("invalid", {}, [verifier.Contradiction("a", contradiction)]))
    with pytest.raises(Rejected, match="needs contradictions"):
        verifier.verify_claims(history, claim("invalid", {}, []))
    with pytest.raises(Rejected, match="not about the keys"):
        verifier.verify_claims(history, claim("valid", {}, []))


def witness(text: str, **columns: Any) -> None:
    certificate = claim("valid", {"a": verifier.Witness(**columns)}, [])
    verifier.verify_claims(History.of(script.events(text)), certificate)


HELD = "1 acquire a\n1 ok 5\n2 acquire a\n2 fail held\n1 release a 5\n1 ok\n3 inspect a\n3 ok null"


def test_a_witness_by_hand() -> None:
    witness(HELD, token=[5], enter=[0], exit=[4], acquire=[0])


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"token": [], "enter": [], "exit": [], "acquire": []}, "does not explain the acquire at 0"),
        ({"token": [5], "enter": [1], "exit": [4], "acquire": [0]}, "was not open in gap 1"),
        ({"token": [5], "enter": [0], "exit": [5], "acquire": [0]}, "does not explain the release at 4"),
        ({"token": [5], "enter": [0], "exit": [1], "acquire": [0]}, "does not explain the acquire at 2"),
        ({"token": [5], "enter": [0], "exit": [None], "acquire": [0]}, "does not explain the release"),
        ({"token": [6], "enter": [0], "exit": [4], "acquire": [0]}, "got another token"),
        ({"token": [5], "enter": [0], "exit": [4], "acquire": [2]}, "no acquire that can have been granted"),
        ({"token": [5], "enter": [4], "exit": [0], "acquire": [0]}, "out of order"),
        ({"token": [5], "enter": [0], "exit": [], "acquire": [0]}, "different lengths"),
        ({"token": [5, None], "enter": [0, 4], "exit": [4, 4], "acquire": [0, 0]}, "granted twice"),
    ],
)
def test_a_wrong_witness_by_hand(columns: dict[str, Any], complaint: str) -> None:
    with pytest.raises(Rejected, match=complaint):
        witness(HELD, **columns)


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"\xff", b'{"format":1}'])
def test_what_is_no_certificate(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "certificate.json"
    path.write_bytes(data)
    with pytest.raises(Rejected, match="not a certificate"):
        verifier.load(path)
    with pytest.raises(Rejected, match="cannot be read"):
        verifier.load(tmp_path / "missing.json")
