"""Histories from and for other tools."""

from checker.formats.export import Target, export
from checker.formats.mapping import Names, Suspicion, lint, to_events
from checker.formats.records import Format, Record, calls, detect, read_records

__all__ = [
    "Format",
    "Names",
    "Record",
    "Suspicion",
    "Target",
    "calls",
    "detect",
    "export",
    "lint",
    "read_records",
    "to_events",
]
