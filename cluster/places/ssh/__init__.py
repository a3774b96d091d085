"""Nodes on hosts that people have, reached by SSH.

`place` is what a run sees. On each host runs `agent`, from a wheel that is uploaded, and is talked to through the
connection (`connection`, `forward`); `script` is what can be run there without it, to look at a host and to clear what
a run has left. `estates` keeps a record of what runs have on hosts, by which `fencepost heal` and `fencepost clean`
find it.
"""
