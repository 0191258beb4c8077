"""Children that die, or whose disk is full, at a chosen system call; Linux on x86-64 only.

A child of this process is traced with ptrace, so that every call that changes a file of a folder
can be counted, cut short or made to fail: inside a commit of SQLite as well as anywhere else.
"""

import ctypes
import errno
import os
import platform
import random
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

SUPPORTED = sys.platform == "linux" and platform.machine() == "x86_64"
TRACEME, GETREGS, SETREGS, SYSCALL, SETOPTIONS = 0, 12, 13, 24, 0x4200
OPTIONS = 1 | 1 << 20  # tell stops at system calls from signals; the child dies with its tracer
STOPPED = signal.SIGTRAP | 0x80
RAX, RDX, RSI, RDI, ORIG_RAX, R10 = 10, 12, 13, 14, 15, 7
NAMES = {
    1: "write", 18: "pwrite64", 74: "fsync", 75: "fdatasync", 77: "ftruncate", 82: "rename",
    83: "mkdir", 84: "rmdir", 86: "link", 87: "unlink", 257: "openat",
}  # fmt: skip
OF_HANDLES = ("write", "pwrite64", "fsync", "fdatasync", "ftruncate")
FAILURES = {
    "full": (errno.ENOSPC, ("write", "pwrite64", "openat", "mkdir", "link")),
    "broken": (errno.EIO, tuple(NAMES.values())),
}
KILLED, TORN = -1, -2
_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long] * 4
Registers = ctypes.c_ulonglong * 27


class Call(NamedTuple):
    """A system call that is about to change a file: its number in the run, name, path and bytes."""

    number: int
    name: str
    path: str
    at: int  # the place in the file, or its new size
    data: bytes


def fork(work: Callable[[], object], said: Path, before: Callable[[], object] = int) -> int:
    """Run something in a child that writes what it prints to a file; returns its id."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        handle = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))  # noqa: SIM115
        before()
        work()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def end(child: int) -> int:
    """Wait for a child; its exit code, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def allowed(scratch: Path) -> bool:
    """Whether processes can be traced here."""
    try:
        return SUPPORTED and Traced(lambda: None, scratch / "said", scratch, None, "kill").code == 0
    except OSError:
        return False


class Traced:
    """A child whose changes to the files of a folder are counted and may be disturbed.

    Args:
        work: what the child does.
        said: the file for what it prints.
        folder: where changes count.
        at: the number of the call, counted from 0, at which it happens; None for never.
        how: `kill` before the call; `tear`: kill after half of what it writes; `power`: kill, and
            of the writes since the last flush of each file only some survive; `full`: this and
            all later calls that need space fail; `broken`: all later calls that change a file fail.

    Attributes:
        calls: names of the calls that were seen.
        code: the exit code, negative for a signal.
    """

    def __init__(
        self, work: Callable[[], object], said: Path, folder: Path, at: int | None, how: str
    ) -> None:
        self.folder, self.at, self.how = folder, at, how
        self.calls: list[str] = []
        self._unsafe: dict[int, tuple[bytes, list[Call]]] = {}
        self._chance = random.Random(at)
        self.child = fork(work, said, _stop)
        os.waitpid(self.child, 0)
        self._ptrace(SETOPTIONS, OPTIONS)
        self.code = self._follow()

    def _follow(self) -> int:
        """Go from system call to system call; returns the exit code."""
        passed, inside = 0, False
        found: Call | None = None
        error = 0
        while True:
            self._ptrace(SYSCALL, passed)
            _, status = os.waitpid(self.child, 0)
            if not os.WIFSTOPPED(status):
                return os.waitstatus_to_exitcode(status)
            passed = os.WSTOPSIG(status)
            if passed != STOPPED:
                continue
            passed, inside = 0, not inside
            if inside:
                found = self._entered()
                error = 0 if found is None else self._disturb(found)
                if error == KILLED:
                    return self._kill()
            elif error == TORN:
                return self._kill()
            elif error:
                self._set({RAX: -error % 2**64})
            elif found and found.name in ("fsync", "fdatasync"):
                self._unsafe.pop(_number(found.path), None)

    def _entered(self) -> Call | None:
        """The call that has begun, if it changes a file of the folder."""
        values = self._registers()
        name = NAMES.get(values[ORIG_RAX], "")
        if name in OF_HANDLES:
            path = os.readlink(f"/proc/{self.child}/fd/{values[RDI]}")
        elif name:
            path = self._text(values[RSI if name == "openat" else RDI])
        if not name or not Path(path).is_relative_to(self.folder) or path.endswith("-shm"):
            return None
        if name in ("openat", "mkdir") and Path(path).exists():
            return None
        if name == "openat" and not values[RDX] & os.O_CREAT:
            return None
        data, at = b"", 0
        if name in ("write", "pwrite64"):
            data = self._memory(values[RSI], values[RDX])
            at = values[R10] if name == "pwrite64" else self._place(values[RDI])
        elif name == "ftruncate":
            at = values[RSI]
        self.calls.append(name)
        return Call(len(self.calls) - 1, name, path, at, data)

    def _disturb(self, call: Call) -> int:
        """Do what was asked for; returns the error that the call ends with, or what happened."""
        if call.name in ("write", "pwrite64", "ftruncate"):
            safe = self._unsafe.setdefault(_number(call.path), (Path(call.path).read_bytes(), []))
            safe[1].append(call)
        if self.at is None or call.number < self.at:
            return 0
        if self.how in FAILURES:
            error, names = FAILURES[self.how]
            if call.name not in names:
                return 0
            self._set({ORIG_RAX: 2**64 - 1})  # no such call: it does nothing
            return error
        if self.how == "tear" and len(call.data) > 1:
            self._set({RDX: len(call.data) // 2})
            return TORN
        return KILLED

    def _kill(self) -> int:
        os.kill(self.child, signal.SIGKILL)
        code = end(self.child)
        if self.how == "power":
            self._lose()
        return code

    def _lose(self) -> None:
        """Leave the files as a power failure might: unflushed writes survive by chance."""
        for path in self.folder.glob("*"):
            if path.name.endswith("-shm"):
                path.unlink()
            elif path.stat().st_ino in self._unsafe:
                safe, calls = self._unsafe[path.stat().st_ino]
                content = bytearray(safe)
                for call in calls:
                    if self._chance.random() < 0.5:
                        _write(content, call)
                path.write_bytes(content)

    def _registers(self) -> "ctypes.Array[ctypes.c_ulonglong]":
        values = Registers()
        self._ptrace(GETREGS, ctypes.addressof(values))
        return values

    def _set(self, changes: dict[int, int]) -> None:
        values = self._registers()
        for place, value in changes.items():
            values[place] = value
        self._ptrace(SETREGS, ctypes.addressof(values))

    def _memory(self, place: int, size: int) -> bytes:
        with open(f"/proc/{self.child}/mem", "rb", buffering=0) as file:
            file.seek(place)
            return file.read(size)

    def _place(self, handle: int) -> int:
        """Where the next write to a handle goes."""
        return int(Path(f"/proc/{self.child}/fdinfo/{handle}").read_text().split()[1])

    def _text(self, place: int) -> str:
        """The text that ends with a zero; it may end shortly before memory that is not there."""
        found = b""
        while b"\0" not in found:
            found += self._memory(place + len(found), 4096 - (place + len(found)) % 4096)
        return os.fsdecode(found.split(b"\0")[0])

    def _ptrace(self, request: int, data: int) -> None:
        if _libc.ptrace(request, self.child, 0, data) < 0:
            raise OSError(ctypes.get_errno(), f"ptrace request {request} failed")


def _stop() -> None:
    """Let the parent trace this process, and wait for it."""
    if _libc.ptrace(TRACEME, 0, 0, 0) < 0:
        raise OSError(ctypes.get_errno(), "a process must be allowed to trace its children")
    os.kill(os.getpid(), signal.SIGSTOP)


def _number(path: str) -> int:
    return os.stat(path).st_ino


def _write(content: bytearray, call: Call) -> None:
    if call.name == "ftruncate":
        content[:] = content[: call.at].ljust(call.at, b"\0")
        return
    content.extend(bytes(max(0, call.at - len(content))))
    content[call.at : call.at + len(call.data)] = call.data
