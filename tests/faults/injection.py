"""Raise an exception at the n-th call inside the package, as SQLite's tests do for its files."""

import sys
from pathlib import Path

import evergraph

ROOT = str(Path(evergraph.__file__).parent)


class Injected(BaseException):
    """Neither an error nor an interrupt that anybody handles."""


def count_calls(action):
    """How many calls of the package's functions an action makes."""
    calls = 0

    def trace(frame, event, _):
        nonlocal calls
        if frame.f_code.co_filename.startswith(ROOT) and frame.f_code.co_name != "<genexpr>":
            calls += 1

    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(None)
    return calls


def raise_at(number, action, error=Injected):
    """Run an action whose n-th call inside the package raises; returns whether it did."""
    calls = 0

    def trace(frame, event, _):
        nonlocal calls
        if frame.f_code.co_filename.startswith(ROOT) and frame.f_code.co_name != "<genexpr>":
            calls += 1
            if calls == number:
                raise error

    sys.settrace(trace)
    try:
        action()
    except error:
        return True
    finally:
        sys.settrace(None)
    return False
