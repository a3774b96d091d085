"""A suite's summary as JUnit XML, for servers that read it.

status                element                          why
passed                -                                the run ended as its scenario expects
violation             failure, type "violation"        the service broke a claim
expectation-not-met   failure, type "expectation-..."  a violation was expected and did not show
coverage              failure, type "coverage"         nothing was violated, but too little was exercised
unknown               error, type "unknown"            there is no verdict
harness               error, type "harness"            the testbed failed, which says nothing about the service
bad-file              error, type "bad-file"           the scenario cannot be used
not-run               skipped                          the suite was interrupted before it
"""

from __future__ import annotations

import re
from pathlib import Path

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from fencepost import invocation
from fencepost.outcome import Status
from fencepost.store import write_text
from fencepost.suite import Entry, Summary

_ELEMENTS: dict[Status, type[Failure] | type[Error] | type[Skipped]] = {
    Status.VIOLATION: Failure,
    Status.UNMET: Failure,
    Status.COVERAGE: Failure,
    Status.UNKNOWN: Error,
    Status.HARNESS: Error,
    Status.BAD_FILE: Error,
    Status.NOT_RUN: Skipped,
}

#: What XML 1.0 cannot hold, not even escaped.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write(path: Path, summary: Summary) -> None:
    """Write the file. Raises OSError."""
    suite = TestSuite(_plain(summary.name))
    for entry in summary.entries:
        suite.add_testcase(_case(entry))
    suite.update_statistics()  # type: ignore[no-untyped-call]
    xml = JUnitXml("fencepost")
    xml.add_testsuite(suite)
    xml.update_statistics()  # type: ignore[no-untyped-call]
    content: bytes = xml.tostring()  # type: ignore[no-untyped-call]
    write_text(path, content.decode("utf-8"))


def _case(entry: Entry) -> TestCase:
    case = TestCase(_plain(entry.name), classname=_plain(str(entry.file)), time=round(entry.seconds, 3))
    element = _ELEMENTS.get(entry.status)
    if element is not None:
        result = element(message=_plain(entry.message), type_=str(entry.status))
        result.text = _plain(_findings(entry) or entry.message)
        case.result = [result]
    if entry.outcome is not None:
        scenario = entry.outcome.scenario
        folder = entry.outcome.folder
        again = invocation.command(["repro", str(folder.repro)])
        case.system_out = _plain(f"seed {scenario.seed}\nreport {folder.report}\nagain {again}")
    return case


def _findings(entry: Entry) -> str:
    if entry.outcome is None or entry.outcome.results is None:
        return ""
    return "\n\n".join(
        f"{name}: {finding.message}"
        for name, result in entry.outcome.results.claims.items()
        for finding in result.findings
        if finding.verdict != "valid"
    )


def _plain(text: str) -> str:
    return _FORBIDDEN.sub("�", text)
