"""Writes the first inputs: every message once, a handshake, a small log. `python -m tests.fuzz.make_corpus`."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

from cluster.node.commands import Grant
from cluster.node.members import Member, Members
from cluster.node.messages import Batch, Compaction, HardState, Snapshot
from cluster.node.protocol import (
    Ack,
    Acquire,
    AddMember,
    Cancel,
    Confirmed,
    Done,
    GrantedTo,
    Holder,
    Inspect,
    MoveLeadership,
    Ping,
    Pong,
    Refused,
    ReleaseToken,
    RemoveMember,
    StatusReply,
    StatusRequest,
    Unknown,
    encode,
)
from cluster.node.raftlog import Entry
from cluster.node.secure import Hail, Proof
from cluster.node.storage import Storage
from cluster.node.wire import frame, framed
from tests.fuzz.targets import CORPUS

REQUESTS = [
    Acquire(1, "a", 1000, 0),
    Acquire(2, "a", 1000, 5000),
    Ack(1, 1),
    Cancel(2),
    ReleaseToken(3, "a", 1),
    Inspect(4, "a"),
    Inspect(5, "a", True),
    AddMember(6, Member("n2", "127.0.0.1:1", False)),
    RemoveMember(7, "n2"),
    MoveLeadership(8, "n2"),
    Ping(),
    StatusRequest(9),
]

ANSWERS = [
    GrantedTo(1, 5),
    Confirmed(1),
    Done(1),
    Holder(2, None, False),
    Refused(1, "held"),
    Refused(0, "bad-request: no"),
    Unknown(2, "leader-changed"),
    Pong(),
    StatusReply(3, {"id": "n1"}),
]


def keep(target: str, data: bytes) -> None:
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / hashlib.sha1(data).hexdigest()).write_bytes(data)


def main() -> None:
    for request in REQUESTS:
        keep("port", frame(request))
    keep("port", b"".join(map(frame, REQUESTS)))
    keep("port", (1 << 30).to_bytes(4, "big"))
    for message in (Hail(bytes(32)), Proof(bytes(32))):
        keep("secret_port", framed(encode(message)))
    keep("secret_port", framed(encode(Hail(bytes(32)))) + framed(encode(Proof(bytes(32)))) + frame(REQUESTS[0]))
    keep("secret_port", frame(REQUESTS[0]))
    for answer in ANSWERS:
        keep("client", frame(answer))
    keep("client", b"".join(map(frame, ANSWERS)))
    with tempfile.TemporaryDirectory() as folder:
        storage = Storage(Path(folder), "n1")
        entries = tuple(Entry(i, 1, Grant(f"k{i}", 1000)) for i in range(1, 5))
        storage.write([Batch(HardState(1, "n1"), entries[:2])])
        storage.write([Batch(None, entries[2:])])
        keep("recovery", (Path(folder) / "log").read_bytes().rstrip(b"\0"))
        snapshot = Snapshot(3, 1, Members.of_voters({"n1": ""}), b"")
        storage.write([Batch(None, (), Compaction(snapshot, 2, 1, entries[2:]))])
        storage.close()
        keep("recovery", (Path(folder) / "log").read_bytes().rstrip(b"\0"))


if __name__ == "__main__":
    main()
