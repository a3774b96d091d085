"""`fencepost verify`, and the certificates of `fencepost check`."""

from __future__ import annotations

from pathlib import Path

from checker import certificate as certificates
from checker import verifier
from fencepost.exits import UserError


def write(history: Path, path: Path, *, tokens_span_keys: bool) -> str:
    """Certify the verdict on `linearizable`. Raises HistoryError, UserError."""
    try:
        certificate = certificates.certify(history, tokens_span_keys=tokens_span_keys)
        certificates.write(path, certificate)
    except certificates.NoCertificate as problem:
        raise UserError(str(problem)) from None
    except OSError as problem:
        raise UserError(f"{path}: cannot be written: {problem.strerror or problem}") from None
    return certificate.verdict


def verify(history: Path, path: Path) -> tuple[str, bool]:
    """The verdict that a certificate proves of the history, and whether it is about one order of tokens over all keys.

    Raises HistoryError, UserError when it proves none."""
    try:
        certificate = verifier.load(path)
        return verifier.verify(history, certificate), certificate.tokens_span_keys
    except verifier.Rejected as problem:
        raise UserError(f"{path}: proves nothing: {problem}") from None
