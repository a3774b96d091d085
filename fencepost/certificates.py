"""`fencepost verify`, and the certificates of `fencepost check`."""

from __future__ import annotations

from pathlib import Path

from checker import certificate as certificates
from checker import verifier
from fencepost.exits import UserError


def write(history: Path, path: Path) -> str:
    """Certify the verdict on `linearizable`. Raises HistoryError, UserError."""
    try:
        certificate = certificates.certify(history)
        certificates.write(path, certificate)
    except certificates.NoCertificate as problem:
        raise UserError(str(problem)) from None
    except OSError as problem:
        raise UserError(f"{path}: cannot be written: {problem.strerror or problem}") from None
    return certificate.verdict


def verify(history: Path, path: Path) -> str:
    """The verdict that a certificate proves of the history. Raises HistoryError, UserError when it proves none."""
    try:
        return verifier.verify(history, verifier.load(path))
    except verifier.Rejected as problem:
        raise UserError(f"{path}: proves nothing: {problem}") from None
