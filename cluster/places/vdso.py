"""The wall clock of a running process, turned from outside: any process, static Go programs too, with no preload.

Problem. Nobody may set the machine's clock, libfaketime has to be there when a process starts and does not reach Go.
But on Linux nearly every program reads the time through the vDSO, a page or two of code that the kernel maps into each
process, and `/proc/PID/mem` lets whoever may trace a process write there, into a copy that is this process' own.

How, so that a busy process survives it:

1. The payload (real system call, then the offset) goes into the unused bytes behind the vDSO's contents, where no
   thread can be. Its variables are at its end.
2. The process is stopped. When no thread stands in the first bytes of the functions, one aligned word of eight bytes,
   which holds a jump to the payload, replaces the beginning of each. The process goes on. (Without this, a thread that
   stands between two old instructions goes on in the middle of a new one.)
3. From then on a step is one aligned write of eight bytes, with no stop. For another rate three words change, and the
   process is stopped for that moment.
4. Healing writes zeros into the variables and leaves the jumps: taking them out would be step 2 again for nothing.

A clock says `real + ahead + ((real - anchor) * drift >> 20)`. Only CLOCK_REALTIME and its coarse form are turned:
programs hand absolute times of CLOCK_MONOTONIC to the kernel, which knows nothing of this.

x86-64 only. What a process does without the vDSO (a system call made directly) it does by the true clock.
"""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_PAYLOAD = bytes.fromhex(
    # clock_gettime(edi, rsi): mov eax,228; syscall; to the end unless it is 0 and bit edi is in the mask;
    "b8e40000000f0585c0755383ff3f774e488b15b9000000480fa3fa7341"
    # rcx = sec * 10^9 + nsec; rax = ((rcx - anchor) * drift >> 20) + rcx + ahead;
    "488b0e4869c900ca9a3b48034e084889c8482b05a300000048f72da4000000480facd0144801c84803059d000000"
    # sec, nsec = divmod(rax, 10^9); return 0
    "4899b900ca9a3b48f7f94889064889560831c0c390"
    # gettimeofday(rdi, rsi), by way of the above; a time zone is answered with zeros
    "574883ec104889f24885d2740748c7020000000031ff4889e6e882ffffff488b0c24488b4424084883c4105f4885ff741148890f31d2"
    "b9e803000048f7f14889470831c0c30f1f00"
    # time(rdi), by way of the above
    "574883ec1031ff4889e6e849ffffff488b04244883c4105f4885ff7403488907c30f1f8000000000"
)
#: Where each function's replacement begins in the payload.
_ENTRIES = {"clock_gettime": 0x00, "gettimeofday": 0x60, "time": 0xA8}
#: Behind the payload: mask, anchor, drift, ahead.
_VARIABLES = struct.Struct("<QqqQ")
_VARIABLES_AT = len(_PAYLOAD)
_AHEAD_AT = _VARIABLES_AT + 24
_PAYLOAD_BYTES = _VARIABLES_AT + _VARIABLES.size

#: CLOCK_REALTIME and CLOCK_REALTIME_COARSE, as bits.
_WALL_CLOCKS = 1 << 0 | 1 << 5

_WORD = 8
_DRIFT_UNIT = 1 << 20
#: A jump has an offset of 32 bits and comes first in its word; the rest of the word stays.
_JUMP = struct.Struct("<Bi")
_JUMP_OPCODE = 0xE9

#: What there is a payload for.
MACHINES = ("x86_64",)

#: Stopping takes microseconds, and a thread leaves the first bytes of a function within nanoseconds.
STOP_BUDGET_S = 2.0
STOP_POLL_S = 0.0005
ATTEMPTS_MAX = 100

_U64 = (1 << 64) - 1


class VdsoError(Exception):
    """The clock of this process can't be turned; the message says why, and what would do where anything would."""


def supported() -> bool:
    """Whether processes of this machine can be treated so at all."""
    return platform.system() == "Linux" and platform.machine() in MACHINES


@functools.cache
def usable() -> bool:
    """Whether the memory of a process that this one starts can be written as well."""
    if not supported():
        return False
    child = subprocess.Popen([sys.executable, "-I", "-c", "input()"], stdin=subprocess.PIPE)
    try:
        with open(f"/proc/{child.pid}/mem", "r+b", buffering=0):
            return True
    except OSError:
        return False
    finally:
        child.kill()
        child.communicate()


@dataclass(slots=True)
class _State:
    """What the variables say; `ahead_ns` counts everything up to the anchor."""

    ahead_ns: int = 0
    anchor_ns: int = 0
    drift: int = 0

    def says(self, real_ns: int) -> int:
        return real_ns + self.ahead_ns + ((real_ns - self.anchor_ns) * self.drift >> 20)

    def pack(self) -> bytes:
        return _VARIABLES.pack(_WALL_CLOCKS, self.anchor_ns, self.drift, self.ahead_ns & _U64)


class VdsoClock:
    """The wall clock of process `pid`, which must stay the same process: the caller sees to that. Raises VdsoError."""

    def __init__(self, pid: int) -> None:
        if not supported():
            raise VdsoError(f"the vDSO can only be patched on Linux on x86-64, not on {platform.machine()}")
        self.pid = pid
        self._base, image = _image(pid)
        self._payload = self._base + _room(image)
        self._functions = {name: self._base + at for name, at in _functions(image).items()}
        self._state = _State()
        self._installed = False

    def turn(self, step_ns: int, rate: float = 1.0) -> None:
        """Add `step_ns` to what the clock says, and let it run at `rate` from now on. Raises VdsoError."""
        self._install()
        drift = round((rate - 1.0) * _DRIFT_UNIT)
        if drift == 0 and self._state.drift == 0:
            self._state.ahead_ns += step_ns
            self._write(self._payload + _AHEAD_AT, struct.pack("<Q", self._state.ahead_ns & _U64))
            return
        with self._stopped():
            now = time.time_ns()
            ahead_ns = self._state.says(now) - now + step_ns
            self._set(_State(ahead_ns, now, drift))

    def right(self) -> None:
        """The true time again. Idempotent."""
        if not self._installed:
            return
        if self._state.drift == 0:
            self._state = _State()
            self._write(self._payload + _AHEAD_AT, bytes(_WORD))
            return
        with self._stopped():
            self._set(_State())

    def _set(self, state: _State) -> None:
        self._state = state
        self._write(self._payload + _VARIABLES_AT, state.pack())

    def _install(self) -> None:
        if self._installed:
            return
        self._write(self._payload, _PAYLOAD + _State().pack())
        with self._stopped(clear_of=tuple(self._functions.values())):
            for name, address in self._functions.items():
                target = self._payload + _ENTRIES[name]
                word = self._read(address, _WORD)
                jump = _JUMP.pack(_JUMP_OPCODE, target - (address + _JUMP.size))
                self._write(address, jump + word[_JUMP.size :])
        self._installed = True

    @contextlib.contextmanager
    def _stopped(self, clear_of: Sequence[int] = ()) -> Iterator[None]:
        """The process stands still inside this, with no thread in the first word at any of these addresses. One that
        somebody else has stopped stays so."""
        if _states(self.pid) <= {"T", "t"}:
            if _standing_in(self.pid, clear_of):
                raise VdsoError(f"process {self.pid} was stopped in the middle of reading its clock; try again")
            yield
            return
        for _ in range(ATTEMPTS_MAX):
            try:
                self._stop()
                if not _standing_in(self.pid, clear_of):
                    yield
                    return
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGCONT)
            time.sleep(STOP_POLL_S)
        raise VdsoError(f"a thread of process {self.pid} stood in its clock function {ATTEMPTS_MAX} times")

    def _stop(self) -> None:
        try:
            os.kill(self.pid, signal.SIGSTOP)
        except OSError as problem:
            raise VdsoError(f"process {self.pid} can't be stopped: {problem.strerror}") from problem
        deadline = time.monotonic() + STOP_BUDGET_S
        while not _states(self.pid) <= {"T", "t"}:
            if time.monotonic() > deadline:
                raise VdsoError(f"process {self.pid} did not stop within {STOP_BUDGET_S:g} s")
            time.sleep(STOP_POLL_S)

    def _write(self, address: int, data: bytes) -> None:
        with _memory(self.pid) as memory:
            try:
                written = os.pwrite(memory, data, address)
            except OSError as problem:
                raise VdsoError(f"the memory of process {self.pid} can't be written: {problem.strerror}") from problem
            if written != len(data):
                raise VdsoError(f"the memory of process {self.pid} was written in part")

    def _read(self, address: int, size: int) -> bytes:
        with _memory(self.pid) as memory:
            return os.pread(memory, size, address)


@contextlib.contextmanager
def _memory(pid: int) -> Iterator[int]:
    try:
        memory = os.open(f"/proc/{pid}/mem", os.O_RDWR | os.O_CLOEXEC)
    except OSError as problem:
        remedy = "its owner, or root, may (and kernel.yama.ptrace_scope may forbid it)"
        raise VdsoError(f"the memory of process {pid} can't be opened: {problem.strerror}; {remedy}") from problem
    try:
        yield memory
    finally:
        os.close(memory)


def _image(pid: int) -> tuple[int, bytes]:
    """Where the vDSO of a process is, and all its bytes."""
    try:
        with open(f"/proc/{pid}/maps") as maps:
            line = next((line for line in maps if line.rstrip().endswith("[vdso]")), None)
    except OSError as problem:
        raise VdsoError(f"process {pid} can't be looked at: {problem.strerror}") from problem
    if line is None:
        raise VdsoError(f"process {pid} has no vDSO (a kernel thread, or one that has ended?)")
    start, end = (int(part, 16) for part in line.split()[0].split("-"))
    with _memory(pid) as memory:
        return start, os.pread(memory, end - start, start)


def _room(image: bytes) -> int:
    """Where in the vDSO the payload fits: at its very end, if nothing is there."""
    at = (len(image) - _PAYLOAD_BYTES) // 16 * 16
    sections_at, section_size, section_count = (
        *struct.unpack_from("<Q", image, 40),
        *struct.unpack_from("<HH", image, 58),
    )
    here = image[at:]
    if at < sections_at + section_size * section_count or here.strip(b"\0") not in (b"", _PAYLOAD.strip(b"\0")):
        if here.startswith(_PAYLOAD):
            raise VdsoError("the vDSO of this process is patched already, by another one of us")
        raise VdsoError("the vDSO of this kernel has no room for a payload")
    return at


def _functions(image: bytes) -> dict[str, int]:
    """Where the functions begin that are to be replaced. All of the vDSO's symbols are dynamic ones."""
    sections_at, size, count = *struct.unpack_from("<Q", image, 40), *struct.unpack_from("<HH", image, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", image, sections_at + size * number) for number in range(count)]
    symbols = next((section for section in sections if section[1] == 11), None)  # SHT_DYNSYM
    if symbols is None:
        raise VdsoError("the vDSO of this kernel names no functions")
    names_at = sections[symbols[6]][4]
    found: dict[str, int] = {}
    for at in range(symbols[4], symbols[4] + symbols[5], 24):
        name_at, _, _, _, value, length = struct.unpack_from("<IBBHQQ", image, at)
        name = image[names_at + name_at : image.index(b"\0", names_at + name_at)].decode(errors="replace")
        plain = name.removeprefix("__vdso_")
        if plain != name and plain in _ENTRIES:
            if value % _WORD or length < _JUMP.size:
                raise VdsoError(f"{name} of this kernel's vDSO can't be replaced by one aligned write")
            found[plain] = value
    if "clock_gettime" not in found:
        raise VdsoError("the vDSO of this kernel has no clock_gettime")
    return found


def _states(pid: int) -> set[str]:
    """Those of the process' threads."""
    states = set()
    for thread in _threads(pid):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/stat") as stat:
            states.add(stat.read().rpartition(")")[2].split()[0])
    if not states:
        raise VdsoError(f"process {pid} has ended")
    return states


def _standing_in(pid: int, addresses: Sequence[int]) -> bool:
    """Whether a thread of the stopped process would go on from within the first word at one of these addresses, or
    that can't be told."""
    if not addresses:
        return False
    for thread in _threads(pid):
        try:
            with open(f"/proc/{pid}/task/{thread}/syscall") as syscall:
                fields = syscall.read().split()
        except OSError:
            continue
        if fields[0] == "running":
            return True
        counter = int(fields[-1], 16)
        if any(address < counter < address + _WORD for address in addresses):
            return True
    return False


def _threads(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
