"""`lockd`: a Raft-replicated lock service with leases and fencing tokens.

The core is pure and deterministic: `core.Core` takes the time and one input after another and gives outputs back;
`raft`, `raftlog`, `locks`, `leases`, `steward` and `commands` are its parts.
The shell around it (`server`, `transport`, `disk`, `storage`, `wire`) owns sockets, the disk and the clock. `client` is
the asyncio library, `cli` the console script.
"""
