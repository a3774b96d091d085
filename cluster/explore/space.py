"""The states of a whole cluster, what can happen in each, and what comes out.

A state is a flat tuple of numbers: one for each node, for what is on its way on each link, for each client, for what
was promised so far, and for how much of each bound is used up. Each number stands for a value that is kept once.

What is nondeterministic in reality is an event here, chosen by the explorer: which link delivers next, what a link or a
crash loses, when a time-out, a lease or a patience is over, when a disk is done, what clients do. Links keep order, as
TCP does. Answers reach their client at once: a client that hears late is one that acts late, and it may.

Assumed of clocks is what the lock service assumes: a client that counts a lease from its request has stopped to believe
in its lock when any node's countdown, which began with the grant, is over.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from cluster.explore.nodes import Nodes, Step
from cluster.explore.promises import Ledger, Violation, logs_match
from cluster.node.core import SNAPSHOT_EVERY, Core
from cluster.node.messages import VoteRequest
from cluster.node.protocol import (
    Ack,
    Acquire,
    Answer,
    Confirmed,
    Done,
    GrantedTo,
    Holder,
    Inspect,
    Refused,
    ReleaseToken,
    Unknown,
)

KEY = "k"
LEASE_MS = 1_000
WAIT_MS = 1_000

#: A session's number is that of its client and how many it had before.
SESSIONS_MAX = 100

Thing = TypeVar("Thing", bound=Hashable)

#: The numbers that a state is made of.
State = tuple[int, ...]

#: What happens: its name, and where.
Event = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far an exploration goes. All but the sizes and `in_flight` (messages on one link at once) are totals over a
    run: of election time-outs, crashes, lost messages, heartbeats, clients' requests, ended leases, clients that go
    away, and patiences that end. `wait`: acquires queue. `slow_disks`: a write takes until the explorer ends it."""

    nodes: int = 3
    clients: int = 2
    in_flight: int = 3
    timeouts: int = 1
    crashes: int = 0
    losses: int = 0
    beats: int = 1
    requests: int = 2
    leases: int = 0
    gone: int = 0
    patience: int = 0
    reads: bool = False
    wait: bool = False
    slow_disks: bool = False
    snapshot_every: int = SNAPSHOT_EVERY

    def to_dict(self) -> dict[str, int]:
        return asdict(self)

    def words(self) -> str:
        return ", ".join(f"{name} {int(value)}" for name, value in self.to_dict().items())

    @staticmethod
    def limits(name: str) -> tuple[int, int]:
        """The least and the most that make sense."""
        return _LIMITS.get(name, (0, 1_000))


_LIMITS = {
    "nodes": (1, 5),
    "clients": (0, 5),
    "in_flight": (1, 100),
    "reads": (0, 1),
    "wait": (0, 1),
    "slow_disks": (0, 1),
    "snapshot_every": (2, SNAPSHOT_EVERY),
}

#: The totals, in the order in which a state counts them.
TOTALS = ("timeouts", "crashes", "losses", "beats", "requests", "leases", "gone", "patience")
TIMEOUTS, CRASHES, LOSSES, BEATS, REQUESTS, LEASES, GONE, PATIENCE = range(len(TOTALS))


class Client(NamedTuple):
    """`phase`: idle, asked, granted, acknowledged, holds, releasing, retrying (its lease is over, or its
    release of unknown fate), reading.
    `since` is how much was applied when it asked what it waits for."""

    phase: str = "idle"
    last: int = 0
    session: int = 0
    token: int | None = None
    since: int = 0


class Table(Generic[Thing]):
    """Values by number."""

    def __init__(self) -> None:
        self._numbers: dict[Thing, int] = {}
        self.values: list[Thing] = []

    def number(self, value: Thing) -> int:
        number = self._numbers.get(value)
        if number is None:
            number = self._numbers[value] = len(self.values)
            self.values.append(value)
        return number


class _LinkFull(Exception):
    """More is on its way on one link than the bounds allow."""


class Space:
    """All that can happen to a cluster of `core_type` within `bounds`."""

    def __init__(self, bounds: Bounds, core_type: type[Core] = Core) -> None:
        self.bounds = bounds
        self.names = tuple(f"n{number}" for number in range(1, bounds.nodes + 1))
        self.nodes = Nodes(self.names, core_type, slow_disks=bounds.slow_disks, snapshot_every=bounds.snapshot_every)
        self.ledger = Ledger(KEY)
        self.clients: Table[Client] = Table()
        self.queues: Table[tuple[int, ...]] = Table()
        self.used: Table[tuple[int, ...]] = Table()
        self.limits = tuple(int(getattr(bounds, name)) for name in TOTALS)
        self._index = {name: number for number, name in enumerate(self.names)}
        self._pairs = [(a, b) for a in range(bounds.nodes) for b in range(bounds.nodes) if a != b]
        self._link = {pair: bounds.nodes + number for number, pair in enumerate(self._pairs)}
        self._client_at = bounds.nodes + len(self._pairs)
        self._ledger_at = self._client_at + bounds.clients
        self._used_at = self._ledger_at + 1
        self._log_pairs: set[tuple[int, int]] = set()
        self._acts: Mapping[str, Callable[[list[int], int, int], None]] = {
            "deliver": self._deliver,
            "lose": self._lose,
            "start": self._start,
            "crash": self._crash,
            "silence": self._silence,
            "timeout": self._timeout,
            "beat": self._beat,
            "sync": self._sync,
            "lease-over": self._lease_over,
            "patience-over": self._patience_over,
            "acquire": self._acquire,
            "acknowledge": self._acknowledge,
            "release": self._release,
            "read": self._read,
            "leave": self._leave,
        }
        self.cut_off = 0  # states left out because a link was full

    def first(self) -> State:
        """All nodes have just started, clients are idle."""
        state = [self.nodes.first(name) for name in self.names]
        state += [self.queues.number(())] * len(self._pairs)
        state += [self.clients.number(Client())] * self.bounds.clients
        state += [self.ledger.nothing, self.used.number((0,) * len(TOTALS))]
        for node in range(self.bounds.nodes):
            self._start(state, node, 0)
        return tuple(state)

    def waiting(self, state: State, a: int, b: int) -> tuple[int, ...]:
        """The numbers of the messages on their way from one node to another, the next one first."""
        return self.queues.values[state[self._link[a, b]]]

    def home(self, client: int) -> int:
        """The node that a client is connected to."""
        return client % self.bounds.nodes

    # ---- what can happen

    def events(self, state: State) -> Iterator[Event]:
        used, limits = self.used.values[state[self._used_at]], self.limits
        looks = [self.nodes.looks[state[node]] for node in range(self.bounds.nodes)]
        lossy = used[LOSSES] < limits[LOSSES]
        for a, b in self._pairs:
            if self.waiting(state, a, b):
                yield "deliver", a, b
                if lossy:
                    yield "lose", a, b
        for node, look in enumerate(looks):
            if not look.up:
                yield "start", node, 0
                continue
            if look.writing:
                yield "sync", node, 0
            if look.leads:
                if used[BEATS] < limits[BEATS]:
                    yield "beat", node, 0
            else:
                if look.votes and used[TIMEOUTS] < limits[TIMEOUTS]:
                    yield "timeout", node, 0
                if look.held_back and self._asked_to_vote(state, node):
                    yield "silence", node, 0
            if used[LEASES] < limits[LEASES]:
                for token in look.counting:
                    yield "lease-over", node, token
            if look.patient and used[PATIENCE] < limits[PATIENCE]:
                yield "patience-over", node, 0
            if used[CRASHES] < limits[CRASHES]:
                for kept in range(look.writing + 1):
                    yield "crash", node, kept
        for number in range(self.bounds.clients):
            if looks[self.home(number)].up:
                yield from self._client_events(state, number, used)

    def _asked_to_vote(self, state: State, node: int) -> bool:
        """Whether the next message from somebody asks for a vote: nothing else cares how long a leader is silent, and
        waiting with the silence until then leads to the same states."""
        for other in range(self.bounds.nodes):
            waiting = self.waiting(state, other, node) if other != node else ()
            if waiting and isinstance(self.nodes.messages[waiting[0]], VoteRequest):
                return True
        return False

    def _client_events(self, state: State, number: int, used: tuple[int, ...]) -> Iterator[Event]:
        client = self.clients.values[state[self._client_at + number]]
        may_ask = used[REQUESTS] < self.limits[REQUESTS]
        match client.phase:
            case "idle" if may_ask:
                yield "acquire", number, 0
                if self.bounds.reads:
                    yield "read", number, 0
            case "granted":
                yield "acknowledge", number, 0
            case "holds" | "retrying" if may_ask:
                yield "release", number, 0
        if client.phase not in ("idle", "reading") and used[GONE] < self.limits[GONE]:
            yield "leave", number, 0

    # ---- what comes out

    def step(self, state: State, event: Event) -> State | None:
        """None: beyond the bound of messages in flight. Raises Violation."""
        after = list(state)
        name, a, b = event
        try:
            self._acts[name](after, a, b)
        except _LinkFull:
            self.cut_off += 1
            return None
        return tuple(after)

    def _use(self, state: list[int], what: int) -> None:
        used = list(self.used.values[state[self._used_at]])
        used[what] += 1
        state[self._used_at] = self.used.number(tuple(used))

    def _take(self, state: list[int], node: int, step: Step) -> None:
        """Take in what a step of one node gave. Raises Violation."""
        name = self.names[node]
        if step.failure is not None:
            raise Violation("no failure", f"{name} ended by itself: {step.failure}")
        log_before = self.nodes.looks[state[node]].log
        state[node] = step.after
        look = self.nodes.looks[step.after]
        ledger, nodes = self.ledger, self.nodes
        for one in step.applied:
            state[self._ledger_at] = ledger.applied(state[self._ledger_at], name, look.term, nodes.logs[look.log], one)
        if step.led is not None:
            state[self._ledger_at] = ledger.leads(state[self._ledger_at], name, step.led, nodes.logs[look.log])
        if look.log != log_before:
            self._match_logs(state, node, look.log)
        for target, message in step.sends:
            other = self._index[target]
            if nodes.looks[state[other]].up:
                link = self._link[node, other]
                waiting = self.queues.values[state[link]]
                if len(waiting) == self.bounds.in_flight:
                    raise _LinkFull
                state[link] = self.queues.number((*waiting, message))
        for number, answer in step.answers:
            self._answer(state, number, answer)

    def _match_logs(self, state: Sequence[int], node: int, log: int) -> None:
        for other in range(self.bounds.nodes):
            other_log = self.nodes.looks[state[other]].log
            if other == node or not self.nodes.looks[state[other]].up or (log, other_log) in self._log_pairs:
                continue
            trouble = logs_match(self.nodes.logs[log], self.nodes.logs[other_log])
            if trouble is not None:
                raise Violation("log matching", f"{self.names[node]} and {self.names[other]}: {trouble}")
            self._log_pairs |= {(log, other_log), (other_log, log)}

    # ---- the network

    def _deliver(self, state: list[int], a: int, b: int) -> None:
        link = self._link[a, b]
        first, *rest = self.queues.values[state[link]]
        state[link] = self.queues.number(tuple(rest))
        self._take(state, b, self.nodes.deliver(state[b], self.names[a], first))

    def _lose(self, state: list[int], a: int, b: int) -> None:
        self._use(state, LOSSES)
        link = self._link[a, b]
        state[link] = self.queues.number(self.queues.values[state[link]][1:])

    # ---- nodes

    def _start(self, state: list[int], node: int, _: int) -> None:
        self._take(state, node, self.nodes.start(state[node], self.names[node]))

    def _crash(self, state: list[int], node: int, kept: int) -> None:
        """What is on its way to it is lost, and its clients lose their connections."""
        self._use(state, CRASHES)
        state[node] = self.nodes.crash(state[node], kept).after
        for other in range(self.bounds.nodes):
            if other != node:
                state[self._link[other, node]] = self.queues.number(())
        for number in range(self.bounds.clients):
            if self.home(number) == node:
                self._cut_off(state, number)

    def _silence(self, state: list[int], node: int, _: int) -> None:
        self._take(state, node, self.nodes.silence(state[node]))

    def _timeout(self, state: list[int], node: int, _: int) -> None:
        self._use(state, TIMEOUTS)
        self._take(state, node, self.nodes.timeout(state[node]))

    def _beat(self, state: list[int], node: int, _: int) -> None:
        self._use(state, BEATS)
        self._take(state, node, self.nodes.beat(state[node]))

    def _sync(self, state: list[int], node: int, _: int) -> None:
        self._take(state, node, self.nodes.sync(state[node]))

    def _lease_over(self, state: list[int], node: int, token: int) -> None:
        """Whoever believed in it has stopped to by now, and may still give it back, late."""
        self._use(state, LEASES)
        state[self._ledger_at] = self.ledger.over(state[self._ledger_at], token)
        for number in range(self.bounds.clients):
            client = self._client(state, number)
            if client.token == token and client.phase == "holds":
                self._put(state, number, client._replace(phase="retrying"))
        self._take(state, node, self.nodes.lease_over(state[node], token))

    def _patience_over(self, state: list[int], node: int, _: int) -> None:
        self._use(state, PATIENCE)
        self._take(state, node, self.nodes.patience_over(state[node]))

    # ---- clients

    def _client(self, state: Sequence[int], number: int) -> Client:
        return self.clients.values[state[self._client_at + number]]

    def _put(self, state: list[int], number: int, client: Client) -> None:
        state[self._client_at + number] = self.clients.number(client)

    def _ask(self, state: list[int], number: int, client: Client, request: Any) -> None:
        self._put(state, number, client)
        home = self.home(number)
        session = number * SESSIONS_MAX + client.session
        self._take(state, home, self.nodes.request(state[home], session, request))

    def _new(self, state: list[int], number: int, phase: str, token: int | None = None) -> Client:
        self._use(state, REQUESTS)
        client = self._client(state, number)
        since = len(self.ledger.holders(state[self._ledger_at])) - 1
        return client._replace(phase=phase, last=client.last + 1, token=token, since=since)

    def _acquire(self, state: list[int], number: int, _: int) -> None:
        client = self._new(state, number, "asked")
        wait_ms = WAIT_MS if self.bounds.wait else 0
        self._ask(state, number, client, Acquire(client.last, KEY, LEASE_MS, wait_ms))

    def _read(self, state: list[int], number: int, _: int) -> None:
        client = self._new(state, number, "reading")
        self._ask(state, number, client, Inspect(client.last, KEY))

    def _release(self, state: list[int], number: int, _: int) -> None:
        token = self._client(state, number).token
        assert token is not None
        client = self._new(state, number, "releasing", token)
        state[self._ledger_at] = self.ledger.asked_back(state[self._ledger_at], token)
        self._ask(state, number, client, ReleaseToken(client.last, KEY, token))

    def _acknowledge(self, state: list[int], number: int, _: int) -> None:
        client = self._client(state, number)
        assert client.token is not None
        self._ask(state, number, client._replace(phase="acknowledged"), Ack(client.last, client.token))

    def _leave(self, state: list[int], number: int, _: int) -> None:
        """Its connection ends; it opens another one when it needs it."""
        self._use(state, GONE)
        session = number * SESSIONS_MAX + self._client(state, number).session
        self._cut_off(state, number)
        home = self.home(number)
        self._take(state, home, self.nodes.gone(state[home], session))

    def _cut_off(self, state: list[int], number: int) -> None:
        """What it waits for has an unknown fate; who holds a lock holds it."""
        client = self._client(state, number)
        anew = Client(session=client.session + 1)
        match client.phase:
            case "holds":
                anew = anew._replace(phase="holds", token=client.token)
            case "releasing" | "retrying":
                anew = anew._replace(phase="retrying", token=client.token)
        self._put(state, number, anew)

    def _answer(self, state: list[int], session: int, answer: Answer) -> None:
        """Raises Violation."""
        number, which = divmod(session, SESSIONS_MAX)
        client = self._client(state, number)
        if client.session != which or answer.id != client.last or client.phase in ("idle", "holds", "retrying"):
            return
        ledger, at = self.ledger, state[self._ledger_at]
        idle = client._replace(phase="idle", token=None, since=0)
        match answer:
            case GrantedTo(token=token):
                if client.phase == "asked":
                    idle = client._replace(phase="granted", token=token, since=0)
                else:
                    return
            case Confirmed():
                assert client.token is not None
                state[self._ledger_at] = ledger.confirmed(at, client.token)
                over = client.token in ledger[at].over
                idle = client._replace(phase="retrying" if over else "holds", since=0)
            case Done():
                assert client.token is not None
                ledger.released(at, client.token)
            case Holder(token=token):
                ledger.read(at, client.since, "holder", token)
            case Refused(error="held"):
                ledger.read(at, client.since, "held", None)
            case Refused(error="not-held"):
                ledger.read(at, client.since, "not", client.token)
            case Refused() | Unknown() if client.phase == "releasing":
                idle = client._replace(phase="retrying", since=0)
        self._put(state, number, idle)
        self._one_holder(state)

    def _one_holder(self, state: Sequence[int]) -> None:
        holding = [n for n in range(self.bounds.clients) if self._client(state, n).phase == "holds"]
        if len(holding) > 1:
            tokens = ", ".join(f"client {n} with token {self._client(state, n).token}" for n in holding)
            raise Violation("one holder", f"both believe that they hold the key: {tokens}")
