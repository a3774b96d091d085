"""One SSH connection to one host: commands on it, and channels to its ports.

A connection that is lost is made again by whoever needs it next, and that is told. All of it blocks and is safe to use
from several threads; `paramiko` has a thread of its own for each connection.
"""

from __future__ import annotations

import contextlib
import logging
import select
import shlex
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import paramiko

from cluster.places.base import PlaceError
from cluster.places.ssh import keys
from cluster.places.ssh.hosts import Host

#: To connect and to prove who we are. A host on another continent needs two seconds, a loaded one a few more.
CONNECT_BUDGET_S = 20.0
#: A lost connection is tried again for so long before whoever needs it is told.
RECONNECT_BUDGET_S = 8.0
RECONNECT_POLL_S = 0.2
CHANNEL_BUDGET_S = 8.0

#: A host that has gone without a word is noticed when it has not acknowledged something for so long.
SILENCE_S = 10
KEEPALIVE_S = 3

#: Between two looks whether a command that says nothing has ended.
EXIT_POLL_S = 0.02

PIECE_BYTES = 256 * 1024
COMPLAINT_LINES_MAX = 8

Say = Callable[[str], object]

logger = logging.getLogger(__name__)

# It logs a line for each channel that nobody answers; what matters comes as an exception.
logging.getLogger("paramiko").setLevel(logging.CRITICAL)


class ConnectionLost(PlaceError):
    """In the middle of something; whoever did it knows whether it may be done again."""


class Done(NamedTuple):
    code: int
    output: bytes
    complaint: str


class Connection:
    """`say` is told when it was lost and made again, in the thread that made it. Everything here raises PlaceError."""

    def __init__(self, host: Host, say: Say = lambda _: None, *, accept_new: bool = False) -> None:
        self.host = host
        self._say = say
        self._accept_new = accept_new
        self._client: paramiko.SSHClient | None = None
        self._lock = threading.Lock()
        self._closed = False
        self._lost = False

    def connect(self) -> None:
        """Connect, if it isn't."""
        self._transport()

    def run(
        self, command: Sequence[str], *, stdin: bytes = b"", budget_s: float, sudo: bool = False, again: bool = False
    ) -> Done:
        """Run a command on the host to its end. `again`: once more, if the connection is lost meanwhile."""
        words = ["sudo", "-n", *command] if sudo else list(command)
        try:
            return self._run(shlex.join(words), stdin, budget_s)
        except ConnectionLost:
            if not again:
                raise
            return self._run(shlex.join(words), stdin, budget_s)

    def output(
        self, command: Sequence[str], *, stdin: bytes = b"", budget_s: float, sudo: bool = False, again: bool = False
    ) -> bytes:
        """What a command says that succeeds."""
        done = self.run(command, stdin=stdin, budget_s=budget_s, sudo=sudo, again=again)
        if done.code != 0:
            lines = done.complaint.strip().splitlines()[-COMPLAINT_LINES_MAX:]
            raise PlaceError(f"{self.host}: {'; '.join(lines) or f'exit code {done.code}'} ({command[0]})")
        return done.output

    def open(self, port: int) -> paramiko.Channel:
        """A channel to a port of the host's loopback. Raises OSError when nobody listens there."""
        deadline = time.monotonic() + RECONNECT_BUDGET_S
        while True:
            transport = self._transport()
            try:
                return transport.open_channel(
                    "direct-tcpip", ("127.0.0.1", port), ("127.0.0.1", 0), timeout=CHANNEL_BUDGET_S
                )
            except paramiko.ChannelException as problem:
                if problem.code == paramiko.common.OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED:
                    raise PlaceError(f"{self.host}: sshd forbids forwarding; it needs AllowTcpForwarding yes") from None
                raise ConnectionRefusedError(str(problem)) from problem
            except (paramiko.SSHException, EOFError, OSError) as problem:
                if transport.is_active() or time.monotonic() > deadline:
                    raise PlaceError(f"{self.host}: no channel could be opened: {_words(problem)}") from problem

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._drop()

    def _transport(self) -> paramiko.Transport:
        with self._lock:
            if self._closed:
                raise PlaceError(f"the connection to {self.host} was closed")
            if self._client is not None:
                transport = self._client.get_transport()
                if transport is not None and transport.is_active():
                    return transport
                self._lost = True
                logger.warning("the connection to %s was lost", self.host)
                self._drop()
            return self._connected()

    def _connected(self) -> paramiko.Transport:
        began = time.monotonic()
        while True:
            try:
                self._client = self._connect()
                break
            except OSError as problem:
                if not self._lost or time.monotonic() > began + RECONNECT_BUDGET_S:
                    raise PlaceError(self._unreachable(problem)) from problem
                time.sleep(RECONNECT_POLL_S)
        if self._lost:
            self._lost = False
            self._say(
                f"the SSH connection to {self.host} was lost, and made again within {time.monotonic() - began:.1f} s"
            )
        transport = self._client.get_transport()
        assert transport is not None
        return transport

    def _unreachable(self, problem: OSError) -> str:
        what = "can't be reached any more" if self._lost else "can't be reached"
        return f"{self.host} {what}: {_words(problem)}"

    def _connect(self) -> paramiko.SSHClient:
        """Raises OSError for a host that can't be reached, which may pass, and PlaceError for what will not."""
        host = self.host
        client = paramiko.SSHClient()
        keys.load(client, host)
        client.set_missing_host_key_policy(keys.KnownKeys(host, accept_new=self._accept_new))
        sock = socket.create_connection((host.address, host.port), CONNECT_BUDGET_S)
        try:
            self._log_in(client, sock)
        except BaseException:
            client.close()
            sock.close()
            raise
        transport = client.get_transport()
        assert transport is not None
        transport.set_keepalive(KEEPALIVE_S)
        return client

    def _log_in(self, client: paramiko.SSHClient, sock: socket.socket) -> None:
        host = self.host
        key, locked = (None, False) if host.key is None else keys.private(host.key)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if hasattr(socket, "TCP_USER_TIMEOUT"):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_S * 1000)
            client.connect(
                host.address,
                host.port,
                host.user,
                pkey=key,
                look_for_keys=host.key is None,
                timeout=CONNECT_BUDGET_S,
                banner_timeout=CONNECT_BUDGET_S,
                auth_timeout=CONNECT_BUDGET_S,
                sock=sock,
            )
        except paramiko.BadHostKeyException as problem:
            raise keys.changed(host, problem) from problem
        except paramiko.AuthenticationException as problem:
            raise PlaceError(self._refused(problem, locked)) from problem
        except (paramiko.SSHException, EOFError) as problem:
            if "No authentication methods" in str(problem):
                raise PlaceError(self._refused(problem, locked)) from problem
            raise OSError(f"no SSH: {_words(problem)}") from problem

    def _refused(self, problem: Exception, locked: bool) -> str:
        host = self.host
        if locked or isinstance(problem, paramiko.PasswordRequiredException):
            return f"{host}: the key {host.key or 'in ~/.ssh'} has a passphrase; give it to an SSH agent (ssh-add)"
        tried = f"the key {host.key}" if host.key is not None else "the keys of an SSH agent and those in ~/.ssh"
        return (
            f"{host.address} did not let {host.user} in with {tried}: name the right `user` and `key`, or add the key"
            " to ~/.ssh/authorized_keys there (ssh-copy-id)"
        )

    def _drop(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            with contextlib.suppress(Exception):
                client.close()

    def _run(self, command: str, stdin: bytes, budget_s: float) -> Done:
        deadline = time.monotonic() + budget_s
        transport = self._transport()
        try:
            channel = transport.open_session(timeout=CHANNEL_BUDGET_S)
            with contextlib.closing(channel):
                channel.exec_command(command)
                if stdin:
                    channel.sendall(stdin)
                channel.shutdown_write()
                return self._finish(channel, command, budget_s, deadline)
        except (paramiko.SSHException, EOFError, OSError) as problem:
            raise ConnectionLost(
                f"the SSH connection to {self.host} was lost in the middle of {command.split()[0]}: {_words(problem)}"
            ) from problem

    def _finish(self, channel: paramiko.Channel, command: str, budget_s: float, deadline: float) -> Done:
        output, complaint = bytearray(), bytearray()
        readable = select.poll()
        readable.register(channel, select.POLLIN)
        while True:
            while channel.recv_ready():
                output += channel.recv(PIECE_BYTES)
            while channel.recv_stderr_ready():
                complaint += channel.recv_stderr(PIECE_BYTES)
            if channel.exit_status_ready() and not channel.recv_ready() and not channel.recv_stderr_ready():
                break
            if channel.closed:
                raise EOFError("the connection ended")
            left = deadline - time.monotonic()
            if left <= 0:
                raise PlaceError(f"{self.host}: not done within {budget_s:g} s: {command[:80]}")
            # An exit status makes nothing readable; so it is looked for now and then.
            readable.poll(1000 * min(left, EXIT_POLL_S))
        # What came between the last look and the exit status.
        while piece := channel.recv(PIECE_BYTES):
            output += piece
        while piece := channel.recv_stderr(PIECE_BYTES):
            complaint += piece
        return Done(channel.recv_exit_status(), bytes(output), complaint.decode(errors="replace"))


def _words(problem: BaseException) -> str:
    if isinstance(problem, OSError) and problem.strerror:
        return problem.strerror
    return str(problem) or type(problem).__name__
