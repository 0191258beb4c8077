"""Starts the ranks of a network that learns in parallel: under torchrun, or as actors of Ray."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.distributed.distributed_c10d import Store

from evergraph import __version__
from evergraph.cluster.engine import check_room, connect
from evergraph.cluster.tasks import MEMORY
from evergraph.learn.ranks import Ranks

T = TypeVar("T")

PATIENCE = timedelta(minutes=30)  # until a rank that does not answer is given up
LAST_WORDS = 5  # seconds in which the other ranks may say why one has failed


@contextmanager
def joined(rank: int, size: int, store: Store | None = None) -> Iterator[Ranks]:
    """Be one of several ranks; without a store, they meet where the environment says."""
    torch.set_num_threads(1)  # as many processes as cores
    dist.init_process_group("gloo", timeout=PATIENCE, rank=rank, world_size=size, store=store)
    try:
        yield Ranks(rank, size)
    finally:
        dist.destroy_process_group()


@contextmanager
def by_torchrun() -> Iterator[Ranks]:
    """The ranks that torchrun has started."""
    with joined(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])) as ranks:
        yield ranks


class Rank:
    """An actor of Ray that is one rank."""

    def meet(self) -> tuple[str, str, int]:
        """The version of the program here, and where the others find the first rank."""
        import ray

        host = ray.util.get_node_ip_address()
        self._store = TCPStore(host, 0, is_master=True, wait_for_workers=False)
        return __version__, host, self._store.port

    def version(self) -> str:
        """The version of the program here."""
        return __version__

    def run(
        self, function: Callable[[Ranks], T], rank: int, size: int, host: str, port: int
    ) -> T | None:
        """What the function returns on the first rank."""
        store = self._store if rank == 0 else TCPStore(host, port, is_master=False)
        with joined(rank, size, store) as ranks:
            found = function(ranks)
            ranks.gather(None)  # the first keeps the meeting place until all have ended
        return found if rank == 0 else None


def on_ranks(function: Callable[[Ranks], T], size: int, address: str | None = None) -> T:
    """Call a function on every rank, each an actor of Ray; returns what the first one has.

    Args:
        function: gets the ranks; sent to each.
        size: how many ranks.
        address: of a cluster of Ray; None uses this machine.
    """
    if size < 1:
        raise ValueError(f"ranks must be at least 1, got {size}")
    ray, began = connect(address, size, MEMORY)
    errors, actors = ray.exceptions, []
    try:
        check_room(ray, size, "ranks")
        make = ray.remote(num_cpus=1)(Rank)
        actors = [make.remote() for _ in range(size)]
        version, host, port = ray.get(actors[0].meet.remote())
        for found in {version, *ray.get([actor.version.remote() for actor in actors[1:]])}:
            if found != __version__:
                raise ValueError(
                    f"all machines must run the same evergraph, got {__version__} here and {found} "
                    "on a rank: install the same version"
                )
        shared = ray.put(function)
        going = [a.run.remote(shared, rank, size, host, port) for rank, a in enumerate(actors)]
        result: T = _first_result(ray, going)
    except errors.RayActorError as error:
        raise ConnectionError(
            f"a rank has died ({error}): resume from a checkpoint, on any number of ranks"
        ) from error
    finally:
        for actor in actors:
            ray.kill(actor)
        if began:
            ray.shutdown()
    return result


def _first_result(ray: Any, going: list[Any]) -> Any:
    """The result of the first of some calls; an error if one of them has failed."""
    waiting = list(going)
    failed: list[BaseException] = []
    while waiting:
        ready, waiting = ray.wait(waiting, num_returns=1, timeout=LAST_WORDS if failed else None)
        if not ready:
            break
        try:
            ray.get(ready[0])
        except ray.exceptions.RayTaskError as error:
            failed.append(error.cause)
    if failed:  # the others have a RuntimeError, since they lost the connection to it
        raise min(failed, key=lambda cause: isinstance(cause, RuntimeError))
    return ray.get(going[0])
