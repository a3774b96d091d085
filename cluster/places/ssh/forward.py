"""A port of this machine's loopback that leads to a port of a host's loopback, through its SSH connection."""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import struct
import threading

import paramiko

from cluster.places.base import PlaceError
from cluster.places.ssh.connection import Connection
from cluster.systems.base import Address

LOOPBACK = "127.0.0.1"
PIECE_BYTES = 64 * 1024

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)

logger = logging.getLogger(__name__)


class Forward:
    """Listens until it is closed. A connection that can't be led on is reset."""

    def __init__(self, connection: Connection, port: int) -> None:
        self._connection = connection
        self._port = port
        self._listener = socket.create_server((LOOPBACK, 0), backlog=128)
        self.address = Address(LOOPBACK, self._listener.getsockname()[1])
        threading.Thread(target=self._accept, name=f"forward {connection.host}", daemon=True).start()

    def close(self) -> None:
        # Closing alone would not wake who waits in `accept`.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._lead_on, args=(sock,), daemon=True).start()

    def _lead_on(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        whole = False
        try:
            with contextlib.closing(self._connection.open(self._port)) as channel:
                whole = _pipe(sock, channel)
        except (OSError, EOFError, PlaceError, paramiko.SSHException) as problem:
            logger.debug("%s, port %d: %s", self._connection.host, self._port, problem)
        finally:
            if not whole:
                with contextlib.suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            sock.close()


def _pipe(sock: socket.socket, channel: paramiko.Channel) -> bool:
    """Pass on in both directions until both have ended; whether they did."""
    with selectors.DefaultSelector() as ready:
        ready.register(sock, selectors.EVENT_READ)
        ready.register(channel, selectors.EVENT_READ)
        while ready.get_map():
            for key, _ in ready.select():
                if key.fileobj is sock:
                    piece = sock.recv(PIECE_BYTES)
                    if piece:
                        channel.sendall(piece)
                    else:
                        ready.unregister(sock)
                        channel.shutdown_write()
                else:
                    piece = channel.recv(PIECE_BYTES)
                    if piece:
                        sock.sendall(piece)
                    else:
                        ready.unregister(channel)
                        if not channel.eof_received:
                            return False
                        with contextlib.suppress(OSError):
                            sock.shutdown(socket.SHUT_WR)
    return True
