"""Threads and processes beside a learner."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from evergraph.learn.learner import Learner
from evergraph.stream.batch import Batch

FORK_SECONDS = 60.0  # after which a forked process counts as hanging


@contextmanager
def reader(learner: Learner, batch: Batch) -> Iterator[list[BaseException]]:
    """Let another thread predict all the time; yields the exceptions that it got.

    It has predicted once when the block begins, and changes threads often.
    """
    begun, done = threading.Event(), threading.Event()
    errors: list[BaseException] = []

    def read() -> None:
        try:
            while not done.is_set():
                torch.rand(3)  # other code draws from torch's global generator
                if len(learner.predict(batch)) != len(batch):
                    raise AssertionError("there is not one prediction per item")
                begun.set()
        except BaseException as error:
            errors.append(error)
        finally:
            begun.set()

    thread, interval = threading.Thread(target=read, daemon=True), sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    with torch.random.fork_rng(devices=[]):
        thread.start()
        try:
            begun.wait()
            yield errors
        finally:
            done.set()
            thread.join()
            sys.setswitchinterval(interval)


def in_fork(action: Callable[[], str]) -> str:
    """What an action returns in a forked process, or the exception that it raises there."""
    receive, send = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            os.write(send, action().encode())
        except BaseException as error:
            os.write(send, repr(error).encode())
        finally:
            os._exit(0)  # without what this process would do at its end
    os.close(send)
    try:
        ready, _, _ = select.select([receive], [], [], FORK_SECONDS)
        if not ready:
            os.kill(process, signal.SIGKILL)
        return os.read(receive, 4096).decode() if ready else "no answer: it hangs"
    finally:
        os.close(receive)
        os.waitpid(process, 0)
