"""Where commands compute: in this process, or on Ray."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Annotated

from typer import Option

if TYPE_CHECKING:
    from evergraph.evaluate.search import Runner

EngineName = Annotated[
    str, Option(help="`local`, or `ray`: many processes or machines (see docs/scale.md).")
]
Address = Annotated[str | None, Option(help="Of --engine ray: a cluster; default: this machine.")]


def runner(engine: str, address: str | None, processes: int | None = None) -> Runner:
    """What calls a function with each of some items, and tells their numbers and results."""
    from evergraph.checks import check_one_of
    from evergraph.evaluate.search import one_by_one

    check_one_of("the engine", engine, ("local", "ray"))
    if engine == "local":
        return one_by_one
    from evergraph.cluster.tasks import on_ray

    return partial(on_ray, address=address, processes=processes or os.cpu_count() or 1)
