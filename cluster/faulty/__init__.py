"""The lock node on a disk that fails on demand.

`python -m cluster.faulty CONTROL serve ...` runs a node as `lockd serve ...` does (and `... CONTROL MUTANT serve ...` a
mutant of it), except that its storage goes through `cluster.faulty.files`, which does what the file CONTROL says. The
product itself knows nothing of this.
"""
