"""How the benchmarks measure time and memory."""

from __future__ import annotations

import ctypes
import gc
import platform
import resource
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path

PROCESSES = Path("/proc")
RESET = Path("/proc/self/clear_refs")


def milliseconds(
    steps: Mapping[str, Callable[[], object]],
    repeats: Mapping[str, int],
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """The median time of each step, taken in turns so that all see the same machine.

    Args:
        steps: what to time, by name.
        repeats: how often each.
        clock: seconds; `time.process_time` leaves out what other programs take.
    """
    times: dict[str, list[float]] = {name: [] for name in steps}
    rounds = min(repeats.values())
    for step in steps.values():
        step()  # warm up: compile, fill caches
    for _ in range(rounds):
        for name, step in steps.items():
            for _ in range(repeats[name] // rounds):
                start = clock()
                step()
                times[name].append((clock() - start) * 1e3)
    return {name: statistics.median(values) for name, values in times.items()}


def resident_mb(process: int | str = "self") -> float:
    """Resident memory of a process now (the own peak where the system does not tell)."""
    return _status("VmRSS", process)


def peak_mb(step: Callable[[], object]) -> float:
    """How far resident memory rises above its start while a step runs.

    Exact on Linux, where the peak can be reset; elsewhere the rise of the peak so far.
    """
    give_back()  # or the rise would be hidden
    if platform.system() == "Linux":
        RESET.write_text("5")
    start = resident_mb()
    step()
    return max(_status("VmHWM") - start, 0.0)


def give_back() -> None:
    """Return freed memory to the system, where that can be asked for."""
    gc.collect()
    if platform.system() == "Linux":
        ctypes.CDLL(None).malloc_trim(0)


def _status(field: str, process: int | str = "self") -> float:
    status = PROCESSES / str(process) / "status"
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith(field):
                return int(line.split()[1]) / 1024
    unit = 2**20 if platform.system() == "Darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
