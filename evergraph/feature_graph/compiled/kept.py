"""Compiled loops on disk, when several processes compile, read and write them at the same time.

numba keeps a list of the compiled forms of a function, and numbers their files. Two processes that
compile different types at once take the same number, and one calls the other's code; a process that
is killed between the list and the file leaves code of an earlier version under a valid name. Here a
file is named by all that its code depends on, and one process compiles while others wait for it.
"""

import fcntl
import os
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from numba.core.caching import IndexDataCacheFile
from numba.core.compiler_lock import global_compiler_lock


class Files(IndexDataCacheFile):  # type: ignore[misc]
    """The compiled forms of one function, each in a file of its own; no list of them."""

    def __init__(self, folder, base, stamp):
        super().__init__(folder, base, stamp)
        self._base = Path(folder, base)
        self._valid = sha256(f"{self._version} {stamp}".encode()).hexdigest()[:12]

    def _file(self, key):
        """The name of a form; key holds types, processor and bytecode."""
        digest = sha256(str(key).encode()).hexdigest()[:16]
        return f"{self._base.name}.{self._valid}.{digest}.nbc"

    def load(self, key):
        """A form as it was saved; None if there is none."""
        try:
            return self._load_data(self._file(key))
        except OSError:
            return None

    def save(self, key, data):
        """Write a form in one step, and remove those of earlier versions of the sources."""
        self._save_data(self._file(key), data)
        for file in self._base.parent.glob(f"{self._base.name}.*.nbc"):
            if not file.name.startswith(f"{self._base.name}.{self._valid}."):
                file.unlink(missing_ok=True)

    @contextmanager
    def alone(self):
        """Wait until no other process compiles the function; where there are no locks, go on."""
        with ExitStack() as held:
            with suppress(OSError):
                lock = os.open(f"{self._base}.lock", os.O_RDONLY | os.O_CREAT, 0o666)
                held.callback(os.close, lock)
                fcntl.flock(lock, fcntl.LOCK_EX)
                held.callback(fcntl.flock, lock, fcntl.LOCK_UN)  # forked processes share it
            yield


def keep(made, stamp):
    """Keep what numba compiles of a function, as long as the stamp stays the same."""
    files = made._cache._cache_file = Files(
        made._cache.cache_path, made._cache._impl.filename_base, stamp
    )
    compile_one = made.compile

    def compile_alone(signature):
        with global_compiler_lock, files.alone():
            return compile_one(signature)

    made.compile = compile_alone
    return made


def compiled_before(made: Any) -> bool:
    """Whether any loop of these sources is on disk; `made` is one of them."""
    files = made._cache._cache_file
    return any(files._base.parent.glob(f"*.{files._valid}.*.nbc"))
