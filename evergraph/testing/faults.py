"""Raise an exception at the n-th call of an action, as SQLite's tests do for its files."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import torch

from evergraph.learn.learner import Learner

PACKAGE = str(Path(__file__).parents[1])
PYTHON = ("call",)
EVERY = ("call", "c_call", "c_return")  # calls of compiled functions too, before and after


class Injected(BaseException):
    """Neither an error nor an interrupt that anybody handles."""


class Outcome(NamedTuple):
    """What an action did: how many calls it made, and the exception that came out of it."""

    calls: int
    error: BaseException | None


def inject(
    action: Callable[[], object],
    files: tuple[str, ...] = (PACKAGE,),
    number: int = 0,
    error: BaseException | type[BaseException] = Injected,
    events: Collection[str] = PYTHON,
    wanted: Callable[[Any], bool] = lambda function: True,
) -> Outcome:
    """Run an action whose n-th call raises.

    Args:
        action: what to run.
        files: calls count if code in these files or folders makes them (or is called, for
            functions written in Python).
        number: of the call that raises, from 1; 0 counts only.
        error: what is raised.
        events: of `sys.setprofile` that count as calls.
        wanted: which compiled functions count.

    Example:
        >>> from evergraph import Reservoir
        >>> inject(lambda: Reservoir(5)).calls > 1
        True
        >>> inject(lambda: Reservoir(5), number=2)
        Outcome(calls=2, error=Injected())
    """
    calls = 0

    def profile(frame: FrameType, event: str, function: Any) -> None:
        nonlocal calls
        code = frame.f_code
        if event not in events or not code.co_filename.startswith(files):
            return
        if code.co_filename == __file__ or code.co_name == "<genexpr>":
            return  # a generator that is thrown away is called too, by nobody
        if event == "c_call" and getattr(function, "__name__", "") == "__exit__":
            return  # Python itself lets no interrupt come between a block and its end
        if event == "call" or wanted(function):
            calls += 1
            if calls == number:
                sys.setprofile(None)
                raise error

    before = sys.getprofile()
    caught: BaseException | None = None
    sys.setprofile(profile)
    try:
        action()
    except BaseException as found:
        caught = found
    finally:
        sys.setprofile(before)
    return Outcome(calls, caught)


def files_of(learner: Learner) -> tuple[str, ...]:
    """The package, and the files that define the parts of a learner."""
    memory = learner.memory
    rule = None if memory is None else getattr(memory, "_rule", None)
    parts: list[object] = [learner, learner.method, learner.task, memory, rule]
    if isinstance(learner.model, torch.nn.Module):
        parts += learner.model.modules()
    modules = {type(part).__module__.partition(".")[0]: type(part) for part in parts}
    own = []
    for name, kind in modules.items():
        with suppress(OSError, TypeError):  # of the prompt or of compiled code
            own += [] if name in ("torch", "evergraph") else [inspect.getfile(kind)]
    return (PACKAGE, *own)
