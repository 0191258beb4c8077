"""Where commands compute: in this process, or on Ray."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from evergraph.cli.console import write

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.progress import Progress

    from evergraph.evaluate.config import Config
    from evergraph.evaluate.search import Runner
    from evergraph.graph.dataset import Dataset

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


def compared(
    configs: Sequence[Config],
    seeds: int,
    data: Dataset,
    run: Runner,
    one: Callable[[Config], dict[str, Any]] | None,
    shown: Progress,
    out: Path | None,
    evidence: dict[str, Any],
) -> list[dict[str, Any]]:
    """The results of many configurations in their order; those that a file has are taken from it.

    They must be of the same commit (in `evidence`). After each, all that are known are written to
    the file. `one` runs a configuration here, with more progress; without it, that can be sent.
    """
    from evergraph.evaluate.config import run_config

    wanted = [(config.sized(data).plain(), list(range(seeds))) for config in configs]
    old_results = _results(out, evidence)
    known = {at: old for at, key in enumerate(wanted) for old in old_results if _key(old) == key}
    todo = [at for at in range(len(configs)) if at not in known]
    task = shown.add_task("", total=len(configs), completed=len(known))
    if one is None:
        one = partial(_run, run_config, tuple(range(seeds)), data)
    for place, found in run(one, [configs[at] for at in todo]):
        known[todo[place]] = found
        if out is not None:
            with suppress(OSError):  # it is tried again with all of them, and an error then
                write({**evidence, "results": [known[at] for at in sorted(known)]}, out)
        words = f"{found['config']['model']}, {found['config']['method']}"
        shown.update(task, advance=1, description=words)
    return [known[at] for at in range(len(configs))]


def _run(run_config: Any, seeds: tuple[int, ...], data: Dataset, config: Config) -> Any:
    return run_config(config, seeds, data)


def _key(result: dict[str, Any]) -> tuple[Any, Any]:
    return result["config"], result["seeds"]


def _results(out: Path | None, evidence: dict[str, Any]) -> list[dict[str, Any]]:
    """The results of an earlier call with the same program."""
    if out is None or not out.exists():
        return []
    try:
        content = json.loads(out.read_text())
        if content.get("commit") != evidence.get("commit"):
            return []
        found: list[dict[str, Any]] = content["results"]
        return [one for one in found if one.keys() >= {"config", "seeds"}]
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{out} is no comparison: {error}; move it, or use another --out"
        ) from error
