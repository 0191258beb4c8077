"""Independent pieces of work, such as the runs of an experiment, over the processes of Ray."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from evergraph.cluster.engine import connect

MEMORY = 200_000_000  # bytes of Ray's object store, if one is begun here

Item = TypeVar("Item")
Result = TypeVar("Result")


def on_ray(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    address: str | None = None,
    processes: int = 2,
) -> Iterator[tuple[int, Result]]:
    """The number of an item and its result, as they get ready, for each of some items.

    What a process did that died is done again by Ray. An error of the function is raised here, and
    ends what is not done yet.

    Args:
        function: what is computed; sent once.
        items: one for each result.
        address: of a cluster of Ray; None uses this machine.
        processes: how many at a time, if this machine is used.
    """
    if not items:
        return
    ray, began = connect(address, processes, MEMORY)
    going: dict[Any, int] = {}
    try:
        call = ray.remote(num_cpus=1, max_retries=-1)(_call)
        shared = ray.put(function)
        going = {call.remote(shared, item): at for at, item in enumerate(items)}
        while going:
            (ready,), _ = ray.wait(list(going), num_returns=1)
            place = going.pop(ready)
            try:
                result = ray.get(ready)
            except ray.exceptions.RayTaskError as error:
                raise error.cause from None
            yield place, result
    finally:
        for ref in going:  # interrupted, not killed: Ray may abort if one is done at that moment
            ray.cancel(ref)
        if began:
            ray.shutdown()


def _call(function: Callable[[Any], Any], item: Any) -> Any:
    import torch

    torch.set_num_threads(1)  # as many processes as cores
    return function(item)
