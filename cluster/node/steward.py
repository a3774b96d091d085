"""The leader's desk: what a leader does with the clients' requests, from the request to the answer.

A steward lives exactly as long as one term of leadership and starts with nothing but the log.

Problem. Grants, releases and expiries take a round trip to commit. Decided on the applied state, two grants for one key
could be on their way at once, and a `Release` (which carries no token) could remove a lock that was granted meanwhile.

Rules, and why they are right:

1. **Decide on the projected state**: the lock table after *every* entry of this leader's log, committed or not. Log
   order is apply order, so what the projection answers now is what every node will compute when the entry is applied.
   A `Release` or `Expire` is proposed only when the projected holder has the very token.
2. **Refusals are reads.** "held" and "not-held" are answered when all entries that they rest on are applied and a
   majority has confirmed this leader in a round that began after the request came. So the refusal can be put right
   behind the last of those entries in log order: nothing that ended before the request came can lie behind it.
3. **Strict FIFO per key.** A waiter leaves the queue when it gives up, is over its time or is gone. Its lease starts at
   the grant.
4. **Ghosts are cleaned up soundly.** A granted client must acknowledge and is then confirmed; only the confirmation
   makes it a holder. A grant whose client is gone, or doesn't acknowledge in time, is released at once, by rule 1, and
   an acknowledgement that comes after that is not confirmed.
5. **Nothing twice.** Requests of one session come in order on one connection, so a number that isn't larger than the
   last one's is a copy and is dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from cluster.node.commands import Configure, Expire, Grant, Granted, Release, Released, Result
from cluster.node.leases import MS, Due, Leases
from cluster.node.locks import LockTable
from cluster.node.members import Members
from cluster.node.protocol import (
    Ack,
    Acquire,
    AddMember,
    Answer,
    Cancel,
    Confirmed,
    Done,
    GrantedTo,
    Holder,
    Inspect,
    LockRequest,
    MoveLeadership,
    Refused,
    ReleaseToken,
    RemoveMember,
    Session,
    Unknown,
)
from cluster.node.raft import Raft
from cluster.node.raftlog import Entry

#: How long a client may take to acknowledge a grant, in ns: several times what a healthy path needs, and short against
#: the patience of those who wait behind a dead client.
ACK_WITHIN = 2_000 * MS

#: A node that this leader hasn't heard for so long, in ns, counts as gone with all its clients.
NODE_SILENT_MAX = 1_500 * MS


#: Acquires that wait in all queues of a leader together.
WAITERS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asked: an answer goes to request `id` of `session`. `tag` is what the client calls the request."""

    session: Session
    id: int
    tag: str = field(default="", compare=False)


@dataclass(slots=True)
class Waiter:
    caller: Caller
    key: str
    lease_ms: int
    deadline: int


@dataclass(slots=True)
class Unacknowledged:
    caller: Caller
    key: str
    token: int
    deadline: int


@dataclass(slots=True)
class Read:
    """A read waits until `index` is applied and `round` confirmed; then `answer` says what to say."""

    caller: Caller
    index: int
    round: int
    answer: Callable[[], Answer]


@dataclass(frozen=True, slots=True)
class Proposed:
    """The entry at `index` of `term` is what the request with this tag asked for."""

    index: int
    term: int
    tag: str


@dataclass(frozen=True, slots=True)
class MemberChange:
    """Somebody waits until `node` is a voter (or, with `gone`, is no member any more)."""

    caller: Caller
    node: str
    gone: bool

    def fulfilled(self, members: Members) -> bool:
        return self.node not in members if self.gone else members.votes(self.node)


@dataclass(slots=True)
class Steward:
    raft: Raft
    table: LockTable
    leases: Leases
    counters: dict[str, int]

    projected: LockTable = field(init=False)
    _applied: int = 0
    #: By key, in order of arrival; a dictionary, so that whoever gives up leaves at once.
    _queues: dict[str, dict[Caller, Waiter]] = field(default_factory=dict)
    #: No waiter's and no grant's deadline is earlier; it may be too early when one of them is gone by now.
    _alarm: int | None = None
    #: Proposed for a client and not yet applied, by log index; None where the client is gone.
    _grants: dict[int, Caller | None] = field(default_factory=dict)
    _releases: dict[int, Caller] = field(default_factory=dict)
    _unacknowledged: dict[Caller, Unacknowledged] = field(default_factory=dict)
    _reads: deque[Read] = field(default_factory=deque)
    #: The sessions' newest requests (rule 5), of each node's present incarnation.
    _last_request: dict[Session, int] = field(default_factory=dict)
    _incarnations: dict[str, int] = field(default_factory=dict)
    _changes: list[MemberChange] = field(default_factory=list)
    _answers: list[tuple[Session, Answer]] = field(default_factory=list)
    _proposed: list[Proposed] = field(default_factory=list)

    @classmethod
    def take_over(cls, raft: Raft, table: LockTable, leases: Leases, counters: dict[str, int], applied: int) -> Steward:
        """Begin a term: project the rest of the log, and count down what is already due."""
        steward = cls(raft, table, leases, counters)
        steward._applied = applied
        steward.projected = table.copy()
        for entry in raft.log.between(applied + 1, raft.log.last_index):
            steward.projected.apply(entry.command)
        leases.restart_due()
        return steward

    # ---- inputs

    def tick(self, now: int) -> None:
        for due in self.leases.due(now):
            self._expire(now, due)
        if self._alarm is None or now < self._alarm:
            return
        for waiter in [waiter for waiter in self._waiters() if waiter.deadline <= now]:
            self._leave_queue(waiter, Refused(waiter.caller.id, "timeout"))
        for grant in [grant for grant in self._unacknowledged.values() if grant.deadline <= now]:
            self._take_back(grant, now)
            self._answer(grant.caller, Unknown(grant.caller.id, "not acknowledged in time"))
        times = [waiter.deadline for waiter in self._waiters()]
        times += [grant.deadline for grant in self._unacknowledged.values()]
        self._alarm = min(times, default=None)

    def give_up_silent_nodes(self, now: int) -> None:
        for node, peer in self.raft.peers.items():
            if now - peer.heard > NODE_SILENT_MAX:
                self._node_gone(node, now)

    def request(self, now: int, session: Session, request: LockRequest) -> None:
        if isinstance(request, Ack):
            self._acknowledge(Caller(session, request.id), request.token)
            return
        if isinstance(request, Cancel):
            self._cancel(Caller(session, request.id))
            return
        if self._incarnations.get(session.node) != session.incarnation:
            self._incarnations[session.node] = session.incarnation
            for earlier in [s for s in self._last_request if s.node == session.node]:
                del self._last_request[earlier]
        if request.id <= self._last_request.get(session, 0):
            return
        self._last_request[session] = request.id
        caller = Caller(session, request.id, getattr(request, "tag", ""))
        match request:
            case Acquire() if self.raft.transferring:
                self._answer(caller, Refused(caller.id, "leader-changing"))
            case ReleaseToken() if self.raft.transferring:
                self._answer(caller, Refused(caller.id, "leader-changing"))
            case Acquire():
                self._acquire(now, caller, request)
            case ReleaseToken():
                self._release(now, caller, request)
            case Inspect():
                key, id = request.key, request.id
                self._read(
                    caller,
                    max(self.raft.commit, self.raft.term_start),
                    lambda: Holder(id, self.table.holder(key), local=False),
                )
            case AddMember(member=member):
                self._change(caller, member.id, self.raft.members.with_learner(member), gone=False)
            case RemoveMember(node=node) if node not in self.raft.members and not self.raft.changing:
                self._answer(caller, Refused(caller.id, f"bad-request: {node} is no member of this cluster"))
            case RemoveMember(node=node):
                self._change(caller, node, self.raft.members.without(node), gone=True)
            case MoveLeadership(node=node):
                self._move_leadership(caller, node)

    def gone(self, now: int, session: Session) -> None:
        """The client of this session can't be reached any more."""
        self._last_request.pop(session, None)
        for waiter in [waiter for waiter in self._waiters() if waiter.caller.session == session]:
            self._leave_queue(waiter, None)
        for index, caller in self._grants.items():
            if caller is not None and caller.session == session:
                self._grants[index] = None
        for grant in [g for g in self._unacknowledged.values() if g.caller.session == session]:
            self._take_back(grant, now)
        self._reads = deque(read for read in self._reads if read.caller.session != session)

    def applied(self, now: int, entry: Entry, result: Result) -> None:
        """`entry`, of this term or an earlier one, was applied to the table."""
        self._applied = entry.index
        if entry.index in self._grants:
            self._granted(now, self._grants.pop(entry.index), entry, result)
        elif entry.index in self._releases:
            caller = self._releases.pop(entry.index)
            released = isinstance(result, Released)
            self._answer(caller, Done(caller.id) if released else Refused(caller.id, "not-held"))
        elif isinstance(entry.command, Configure):
            fulfilled = [change for change in self._changes if change.fulfilled(entry.command.members)]
            for change in fulfilled:
                self._changes.remove(change)
                self._answer(change.caller, Done(change.caller.id))

    def take_answers(self) -> list[tuple[Session, Answer]]:
        """The answers that are ready, after every input."""
        self._serve_reads()
        answers, self._answers = self._answers, []
        return answers

    def take_proposed(self) -> list[Proposed]:
        """What has come into the log for requests that have a tag."""
        proposed, self._proposed = self._proposed, []
        return proposed

    def resign(self) -> list[tuple[Session, Answer]]:
        """This node leads no more: answer everybody. What never came into the log definitely had no effect."""
        for waiter in self._waiters():
            self._answer(waiter.caller, Refused(waiter.caller.id, "leader-changed"))
        for read in self._reads:
            self._answer(read.caller, Refused(read.caller.id, "leader-changed"))
        proposed = [caller for caller in self._grants.values() if caller is not None]
        changing = [change.caller for change in self._changes]
        for caller in (*proposed, *self._releases.values(), *self._unacknowledged, *changing):
            self._answer(caller, Unknown(caller.id, "leader-changed"))
        return self._answers

    def deadline(self) -> int | None:
        """When `tick` has something to do, in ns; None when nothing waits."""
        lease = self.leases.deadline()
        if lease is None or self._alarm is None:
            return lease or self._alarm
        return min(lease, self._alarm)

    def waiting(self) -> int:
        return sum(map(len, self._queues.values()))

    def _waiters(self) -> Iterator[Waiter]:
        return (waiter for queue in self._queues.values() for waiter in queue.values())

    def _wake_at(self, deadline: int) -> None:
        if self._alarm is None or deadline < self._alarm:
            self._alarm = deadline

    # ---- requests

    def holder(self, key: str) -> int | None:
        """The token on which decisions about `key` rest: the projected holder's (rule 1)."""
        return self.projected.holder(key)

    def _acquire(self, now: int, caller: Caller, request: Acquire) -> None:
        if self.holder(request.key) is None and request.key not in self._queues:
            self._grant(now, request.key, request.lease_ms, caller)
        elif request.wait_ms == 0:
            self._refuse(caller, "held")
        elif self.waiting() >= WAITERS_MAX:
            self._answer(caller, Refused(caller.id, "too-many-waiters"))
        else:
            waiter = Waiter(caller, request.key, request.lease_ms, now + request.wait_ms * MS)
            self._queues.setdefault(request.key, {})[caller] = waiter
            self._wake_at(waiter.deadline)

    def _release(self, now: int, caller: Caller, request: ReleaseToken) -> None:
        if self._may_release(request.key, request.token):
            self._releases[self._propose_for(caller, Release(request.key))] = caller
            self._serve_queue(now, request.key)
        else:
            self._refuse(caller, "not-held")

    def _may_release(self, key: str, token: int) -> bool:
        return self.holder(key) == token

    def _refuse(self, caller: Caller, error: str) -> None:
        """Refuse for the sake of the lock's state (rule 2): it rests on the whole log, projected as it is."""
        self._read(caller, self.raft.log.last_index, lambda: Refused(caller.id, error))

    def _cancel(self, caller: Caller) -> None:
        for queue in self._queues.values():
            if caller in queue:
                self._leave_queue(queue[caller], Refused(caller.id, "cancelled"))
                return
        on_its_way = (
            caller in self._grants.values()
            or caller in self._unacknowledged
            or any(read.caller == caller for read in self._reads)
        )
        if not on_its_way:
            self._answer(caller, Unknown(caller.id, "not waiting"))

    def _acknowledge(self, caller: Caller, token: int) -> None:
        grant = self._unacknowledged.get(caller)
        if grant is None or grant.token != token or self.holder(grant.key) != token:
            self._answer(caller, Unknown(caller.id, "the grant was taken back, or its lease is over"))
        else:
            del self._unacknowledged[caller]
            self._answer(caller, Confirmed(caller.id))

    def _change(self, caller: Caller, node: str, members: Members, *, gone: bool) -> None:
        """What the log has already is not proposed again, and not called done before it is committed."""
        change = MemberChange(caller, node, gone)
        if change.fulfilled(self.raft.members) and members == self.raft.members and not self.raft.changing:
            self._answer(caller, Done(caller.id))
        elif not members.voters:
            self._answer(caller, Refused(caller.id, "bad-request: the last voter can't be removed"))
        elif members != self.raft.members and self.raft.propose_members(members) is None:
            self._answer(caller, Refused(caller.id, "busy: another change of members is not committed yet"))
        else:
            self._changes.append(change)

    def _move_leadership(self, caller: Caller, node: str) -> None:
        if not self.raft.members.votes(node):
            self._answer(caller, Refused(caller.id, f"bad-request: {node} is no voter of this cluster"))
            return
        if node != self.raft.id:
            self.raft.transfer(node)
        self._answer(caller, Done(caller.id))

    # ---- grants

    def _propose(self, command: Grant | Release | Expire) -> int:
        entry = self.raft.propose(command)
        self.projected.apply(command)
        return entry.index

    def _propose_for(self, caller: Caller, command: Grant | Release) -> int:
        index = self._propose(command)
        if caller.tag:
            self._proposed.append(Proposed(index, self.raft.term, caller.tag))
        return index

    def _grant(self, now: int, key: str, lease_ms: int, caller: Caller) -> None:
        self._grants[self._propose_for(caller, Grant(key, lease_ms))] = caller

    def _expire(self, now: int, due: Due) -> None:
        if self._may_release(due.key, due.token):
            self._propose(Expire(due.key, due.token))
            self._serve_queue(now, due.key)

    def _serve_queue(self, now: int, key: str) -> None:
        """Grant to the first who waits, once the key is free in the projection."""
        queue = self._queues.get(key)
        if queue and self.holder(key) is None:
            waiter = queue.pop(next(iter(queue)))
            self._grant(now, key, waiter.lease_ms, waiter.caller)
        if not queue:
            self._queues.pop(key, None)

    def _leave_queue(self, waiter: Waiter, answer: Answer | None) -> None:
        queue = self._queues[waiter.key]
        del queue[waiter.caller]
        if not queue:
            del self._queues[waiter.key]
        if answer is not None:
            self._answer(waiter.caller, answer)

    def _granted(self, now: int, caller: Caller | None, entry: Entry, result: Result) -> None:
        assert isinstance(entry.command, Grant)
        key = entry.command.key
        if not isinstance(result, Granted):
            if caller is not None:
                self._answer(caller, Refused(caller.id, "held"))
        elif caller is None:
            self._clean_up(key, result.token, now)
        else:
            self._unacknowledged[caller] = Unacknowledged(caller, key, result.token, now + ACK_WITHIN)
            self._wake_at(now + ACK_WITHIN)
            self._answer(caller, GrantedTo(caller.id, result.token))

    def _take_back(self, grant: Unacknowledged, now: int) -> None:
        del self._unacknowledged[grant.caller]
        self._clean_up(grant.key, grant.token, now)

    def _clean_up(self, key: str, token: int, now: int) -> None:
        """Release a grant that nobody believes in (rule 4)."""
        if self._may_release(key, token):
            self.counters["ghosts"] += 1
            self._propose(Release(key))
            self._serve_queue(now, key)

    def _node_gone(self, node: str, now: int) -> None:
        """A silent node can't pass anything on; its clients that still wait are told when it is back."""
        for waiter in [waiter for waiter in self._waiters() if waiter.caller.session.node == node]:
            self._leave_queue(waiter, Refused(waiter.caller.id, "node-silent"))
        for grant in [g for g in self._unacknowledged.values() if g.caller.session.node == node]:
            self._take_back(grant, now)
            self._answer(grant.caller, Unknown(grant.caller.id, "node-silent"))

    # ---- reads and answers

    def _read(self, caller: Caller, index: int, answer: Callable[[], Answer]) -> None:
        self._reads.append(Read(caller, index, self.raft.next_round(), answer))

    def _serve_reads(self) -> None:
        if not self._reads:
            return
        if self._reads[-1].round > self.raft.round:
            self.raft.begin_round()
        confirmed = self.raft.confirmed_round()
        while self._reads and self._reads[0].round <= confirmed and self._reads[0].index <= self._applied:
            read = self._reads.popleft()
            self._answer(read.caller, read.answer())

    def _answer(self, caller: Caller, answer: Answer) -> None:
        self._answers.append((caller.session, answer))
