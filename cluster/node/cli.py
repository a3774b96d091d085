"""The console script `lockd`: run a node, and use a lock from the shell.

Exit codes: 0 done · 1 refused (held, not held, no leader) · 2 unknown: it may have taken effect, or may still ·
254 bad arguments · 255 the node can't be reached, or had to stop.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import typer

from cluster.node import dump
from cluster.node.address import is_loopback, join_address, split_address
from cluster.node.client import Client, Reply, connect
from cluster.node.clock import ClockFileError, FileClock
from cluster.node.core import SNAPSHOT_EVERY, Core
from cluster.node.protocol import NODE_ID
from cluster.node.secure import SECRET_BYTES_MIN
from cluster.node.server import Config, NodeFailedError, Server
from cluster.node.storage import Contents, Storage, StorageError

T = TypeVar("T")

EXIT_REFUSED, EXIT_UNKNOWN, EXIT_USAGE, EXIT_FAILED = 1, 2, 254, 255

DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}

app = typer.Typer(
    name="lockd", help="A replicated lock service with leases and fencing tokens.", add_completion=False,
    no_args_is_help=True, pretty_exceptions_enable=False,
)  # fmt: skip


def address(text: str) -> tuple[str, int]:
    found = split_address(text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is no HOST:PORT")
    return found


def milliseconds(text: str) -> int:
    match = DURATION.fullmatch(text)
    if match is None:
        raise typer.BadParameter(f"{text!r} is no duration; write 10s, 500ms, 2m or 1h")
    return round(float(match[1]) * UNIT_MS[match[2]])


def node_id(text: str) -> str:
    if NODE_ID.fullmatch(text) is None:
        raise typer.BadParameter(f"{text!r} is no node name: 1 to 32 letters, digits, '.', '_' or '-'")
    return text


def peer_addresses(texts: list[str]) -> dict[str, tuple[str, int]]:
    peers: dict[str, tuple[str, int]] = {}
    for text in texts:
        name, equals, at = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"{text!r} is no NAME=HOST:PORT")
        if name in peers:
            raise typer.BadParameter(f"peer {name} is given twice")
        peers[node_id(name)] = address(at)
    return peers


Node = Annotated[str, typer.Option("--node", metavar="HOST:PORT", envvar="LOCKD_NODE", help="The node to ask.")]
SecretFile = Annotated[
    Path | None, typer.Option(help="A file with the cluster's secret; or set LOCKD_SECRET.", dir_okay=False)
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Timeout = Annotated[str, typer.Option(metavar="DURATION", help="How long to wait for an answer.")]


def _secret(file: Path | None) -> bytes | None:
    """The secret of the cluster; None when none is given."""
    text = os.environ.get("LOCKD_SECRET", "")
    if file is not None:
        try:
            text = file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise typer.BadParameter(f"cannot read the secret in {file}: {error}") from error
    if not text and file is None:
        return None
    if len(text.encode()) < SECRET_BYTES_MIN:
        raise typer.BadParameter(f"a secret has {SECRET_BYTES_MIN} bytes or more, this one has {len(text.encode())}")
    return text.encode()


def add_serve(to: typer.Typer, core_type: type[Core], storage_type: type[Storage]) -> None:
    """Add the command that runs a node, built from these types."""

    @to.command()
    def serve(
        id: Annotated[str, typer.Option(metavar="NAME", help="This node's name.")],
        listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where clients and peers connect.")],
        data: Annotated[Path, typer.Option(metavar="DIR", help="This node's own data folder.", file_okay=False)],
        peer: Annotated[
            list[str] | None, typer.Option(metavar="NAME=HOST:PORT", help="Each other node, and where it is.")
        ] = None,
        join: Annotated[bool, typer.Option(help="Wait to be added to the cluster of the peers.")] = False,
        advertise: Annotated[
            str, typer.Option(metavar="HOST:PORT", help="Where other nodes find this one, if not where it listens.")
        ] = "",
        cluster: Annotated[
            str, typer.Option(metavar="NAME", help="The cluster's name, the same on all nodes.")
        ] = "lockd",
        snapshot_every: Annotated[
            int, typer.Option(min=10, envvar="LOCKD_SNAPSHOT_EVERY", help="Log entries between two snapshots.")
        ] = SNAPSHOT_EVERY,
        clock_file: Annotated[
            Path | None, typer.Option(metavar="FILE", help="For tests: take time from a clock that this file turns.")
        ] = None,
        applied: Annotated[
            Path | None,
            typer.Option(metavar="FILE", dir_okay=False, help="For tests: write down there what this node applies."),
        ] = None,
        admin: Annotated[
            str, typer.Option(metavar="HOST:PORT", help="Serve /metrics, /health and /status over HTTP there.")
        ] = "",
        secret_file: SecretFile = None,
        insecure: Annotated[
            bool, typer.Option(help="Ask nobody for the cluster's secret; only on a loopback address.")
        ] = False,
        log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    ) -> None:
        """Run a node in the foreground, until SIGTERM."""
        level = logging.getLevelNamesMapping().get(log_level.upper())
        if level is None:
            raise typer.BadParameter(f"{log_level!r} is no log level; use debug, info, warning or error")
        logging.basicConfig(
            level=level, stream=sys.stderr, format="%(asctime)s.%(msecs)03d %(levelname)s %(message)s",
            datefmt="%Y-%m-%dT%H:%M:%S",
        )  # fmt: skip
        host, port = address(listen)
        peers = peer_addresses(peer or [])
        if node_id(id) in peers:
            raise typer.BadParameter(f"--peer names this very node, {id}; name only the others")
        if advertise:
            address(advertise)
        secret = _secret(secret_file)
        if insecure == (secret is not None):
            raise typer.BadParameter(
                "give the cluster's secret (--secret-file, or LOCKD_SECRET), or say --insecure to do without; not both"
            )
        if insecure and not is_loopback(host):
            raise typer.BadParameter(f"--insecure needs a loopback address, and {host} is none: give a secret instead")
        config = Config(
            id=id,
            host=host,
            port=port,
            peers=peers,
            data=data,
            cluster=cluster,
            join=join,
            advertise=advertise,
            snapshot_every=snapshot_every,
            admin=address(admin) if admin else None,
            secret=secret,
            applied=applied,
        )
        try:
            clock = time.monotonic_ns if clock_file is None else FileClock(clock_file)
            server = _server(config, core_type, storage_type, clock)
            asyncio.run(server.run())
        except (StorageError, NodeFailedError, ClockFileError) as error:
            _fail(str(error))
        except OSError as error:
            _fail(f"cannot listen on {listen}: {error.strerror or error}; is another node running there?")


def _server(config: Config, core_type: type[Core], storage_type: type[Storage], clock: Callable[[], int]) -> Server:
    try:
        return Server(config, core_type=core_type, storage_type=storage_type, clock=clock)
    except OSError as error:
        _fail(f"cannot write to {config.applied}: {error.strerror or error}")


@app.command()
def acquire(
    key: str,
    lease: Annotated[str, typer.Option(metavar="DURATION", help="How long the lock lasts at most.")],
    node: Node = "127.0.0.1:7420",
    wait: Annotated[str, typer.Option(metavar="DURATION", help="How long to queue for it.")] = "0s",
    timeout: Timeout = "5s",
    secret_file: SecretFile = None,
    as_json: Json = False,
) -> None:
    """Acquire KEY and print the fencing token."""
    lease_ms, wait_ms = milliseconds(lease), milliseconds(wait)
    reply = _ask(node, timeout, secret_file, lambda client: client.acquire(key, lease_ms, wait_ms))
    _print_reply(reply, as_json, f"{reply.token}", token=reply.token)


@app.command()
def release(
    key: str,
    token: int,
    node: Node = "127.0.0.1:7420",
    timeout: Timeout = "5s",
    secret_file: SecretFile = None,
    as_json: Json = False,
) -> None:
    """Release KEY, held under TOKEN."""
    reply = _ask(node, timeout, secret_file, lambda client: client.release(key, token))
    _print_reply(reply, as_json, "released")


@app.command()
def inspect(
    key: str,
    node: Node = "127.0.0.1:7420",
    local: Annotated[bool, typer.Option(help="What this node knows, which may be old.")] = False,
    timeout: Timeout = "5s",
    secret_file: SecretFile = None,
    as_json: Json = False,
) -> None:
    """Print the token that holds KEY, or that it is free."""
    reply = _ask(node, timeout, secret_file, lambda client: client.inspect(key, local=local))
    held = "free" if reply.token is None else f"held under token {reply.token}"
    _print_reply(reply, as_json, held + (" (as this node knows it)" if local else ""), token=reply.token, local=local)


@app.command()
def status(
    node: Node = "127.0.0.1:7420", timeout: Timeout = "5s", secret_file: SecretFile = None, as_json: Json = False
) -> None:
    """Print what a node knows of itself."""
    found = _ask(node, timeout, secret_file, lambda client: client.status())
    if as_json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:12} {value}")


def _dump_app(of: str, lines: Callable[[Contents], Iterator[dict[str, Any]]], text: str) -> None:
    """Add `lockd OF dump DIR`."""
    dumps = typer.Typer(help=f"Look into a node's {of} on disk.", no_args_is_help=True)
    app.add_typer(dumps, name=of)
    dumps.callback()(lambda: None)

    @dumps.command("dump", help=text)
    def dump_one(data: Annotated[Path, typer.Argument(metavar="DIR", help="The node's data folder.")]) -> None:
        try:
            for line in lines(dump.read(data)):
                print(json.dumps(line))
        except StorageError as error:
            _fail(str(error))


_dump_app("log", dump.log_lines, "Print each entry, with the result of applying it, as JSON Lines.")
_dump_app("snapshot", dump.snapshot_lines, "Print the snapshot and the locks in it, as JSON Lines.")

members_app = typer.Typer(help="Who belongs to the cluster.", no_args_is_help=True)
app.add_typer(members_app, name="members")


@members_app.command("list")
def list_members(
    node: Node = "127.0.0.1:7420", timeout: Timeout = "5s", secret_file: SecretFile = None, as_json: Json = False
) -> None:
    """Print the members, as the node knows them."""
    members = _ask(node, timeout, secret_file, lambda client: client.status())["members"]
    if as_json:
        print(json.dumps(members))
    else:
        for member in members:
            print(f"{member['id']:12} {member['address']:24} {'voter' if member['voter'] else 'learner'}")


@members_app.command("add")
def add_member(
    member: Annotated[str, typer.Argument(metavar="NAME=HOST:PORT")],
    node: Node = "127.0.0.1:7420",
    timeout: Timeout = "30s",
    secret_file: SecretFile = None,
    as_json: Json = False,
) -> None:
    """Add a node, started with --join; done when it has caught up and votes."""
    [(name, (host, port))] = peer_addresses([member]).items()
    reply = _ask(node, timeout, secret_file, lambda client: client.add_member(name, join_address(host, port)))
    _print_reply(reply, as_json, f"{name} votes")


@members_app.command("remove")
def remove_member(
    name: str,
    node: Node = "127.0.0.1:7420",
    timeout: Timeout = "30s",
    secret_file: SecretFile = None,
    as_json: Json = False,
) -> None:
    """Remove a node, which may lead; stop it afterwards."""
    reply = _ask(node, timeout, secret_file, lambda client: client.remove_member(node_id(name)))
    _print_reply(reply, as_json, f"{name} is no member any more")


@app.command()
def transfer(
    name: str,
    node: Node = "127.0.0.1:7420",
    timeout: Timeout = "5s",
    secret_file: SecretFile = None,
    as_json: Json = False,
) -> None:
    """Ask the leader to hand leadership to node NAME."""
    reply = _ask(node, timeout, secret_file, lambda client: client.move_leadership(node_id(name)))
    _print_reply(reply, as_json, f"{name} was asked to lead")


def _ask(node: str, timeout: str, secret_file: Path | None, call: Callable[[Client], Awaitable[T]]) -> T:
    host, port = address(node)
    timeout_s = milliseconds(timeout) / 1000
    secret = _secret(secret_file)

    async def ask() -> T:
        client = await connect(host, port, timeout_s=timeout_s, secret=secret)
        try:
            return await call(client)
        finally:
            await client.close()

    try:
        return asyncio.run(ask())
    except OSError as error:
        _fail(f"no answer from {node}: {error or 'timed out'}; is a node running there? (--node, or LOCKD_NODE)")


def _print_reply(reply: Reply, as_json: bool, done: str, **fields: Any) -> None:
    if as_json:
        known = {"outcome": reply.type, "error": reply.error, "leader": reply.leader}
        print(json.dumps({name: value for name, value in known.items() if value is not None} | fields))
    elif reply.type == "ok":
        print(done)
    elif reply.type == "fail":
        print(
            f"lockd: refused: {reply.error}" + (f" (leader: {reply.leader})" if reply.leader else ""), file=sys.stderr
        )
    else:
        print(f"lockd: unknown ({reply.error}): it may have taken effect, or may still", file=sys.stderr)
    if reply.error is not None and reply.error.startswith("bad-request"):
        raise typer.Exit(EXIT_USAGE)
    raise typer.Exit({"ok": 0, "fail": EXIT_REFUSED, "info": EXIT_UNKNOWN}[reply.type])


def _fail(message: str) -> NoReturn:
    print(f"lockd: {message}", file=sys.stderr)
    raise typer.Exit(EXIT_FAILED)


add_serve(app, Core, Storage)


def main(commands: typer.Typer = app) -> NoReturn:
    """Run the console script; a mistake in the arguments exits with 254."""
    command = typer.main.get_command(commands)
    try:
        sys.exit(command.main(standalone_mode=False))
    except typer.Abort:
        sys.exit(130)
    except Exception as error:
        if not hasattr(error, "exit_code") or not hasattr(error, "show"):
            raise
        error.show()
        sys.exit(EXIT_USAGE)
