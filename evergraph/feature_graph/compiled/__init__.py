"""Compiled loops (numba), kept on disk; the only modules without strict types."""

from hashlib import sha256
from pathlib import Path

from numba import njit

from evergraph.feature_graph.compiled.kept import keep

FAST = {"reassoc", "contract", "arcp", "nsz"}


def sources(folder):
    """A hash of all files of a folder."""
    found = sha256()
    for file in sorted(Path(folder).glob("*.py")):
        found.update(file.read_bytes())
    return found.digest()


_SOURCES = sources(Path(__file__).parent)


def loop(function, fastmath=FAST):
    """Compile a function: serial, without the GIL, kept until a file of this folder changes.

    Serial on purpose: numba's parallel mode kills forked data-loader workers. Alone, numba would
    look at the function's own file only, and go on with a loop of another one as it was. Loops are
    put into those that call them: a call would reach one copy of a loop in the process that has
    compiled it and another one in those that find it on disk, and their last bits differ.
    """
    options = {"nogil": True, "cache": True, "error_model": "numpy", "forceinline": True}
    return keep(njit(fastmath=fastmath, **options)(function), _SOURCES)


def exact_loop(function):
    """The same with the operations in the order in which they are written."""
    return loop(function, fastmath=False)
