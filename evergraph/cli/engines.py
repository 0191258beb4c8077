"""Where commands compute: in this process, or on Ray."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from evergraph.cli.console import write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.progress import Progress

    from evergraph.evaluate.config import Config
    from evergraph.evaluate.search import Runner
    from evergraph.graph.dataset import Dataset
    from evergraph.learn.ranks import Ranks

EngineName = Annotated[
    str, Option(help="`local`, or `ray`: many processes or machines (see docs/scale.md).")
]
RankCount = Annotated[
    int | None,
    Option(
        min=1,
        help="Of --engine ray: processes that learn one network, each its part of every batch. "
        "torchrun -m evergraph run starts them too.",
    ),
]
Address = Annotated[str | None, Option(help="Of --engine ray: a cluster; default: this machine.")]

Device = Annotated[
    str,
    Option(help="Where networks compute: cpu, cuda, cuda:1, mps. Closed forms stay on the CPU."),
]


def check_place(device: str, engine: str) -> str:
    """The device, if it is here and the engine can use it."""
    from evergraph.checks import check_device

    if engine == "ray" and device != "cpu":
        raise ValueError(f"--device must be cpu with --engine ray, got {device!r}; use one of them")
    return check_device(device)


def runner(engine: str, address: str | None, processes: int | None = None) -> Runner:
    """What calls a function with each of some items, and tells their numbers and results."""
    from evergraph.checks import check_one_of
    from evergraph.evaluate.search import one_by_one

    check_one_of("the engine", engine, ("local", "ray"))
    if engine == "local":
        return one_by_one
    from evergraph.cluster.tasks import on_ray

    return partial(on_ray, address=address, processes=processes or os.cpu_count() or 1)


def check_ranks(engine: str, ranks: int | None) -> None:
    """Refuse a number of ranks that nobody would start."""
    from evergraph.checks import check_one_of

    check_one_of("the engine", engine, ("local", "ray"))
    if ranks is not None and engine != "ray":
        raise ValueError(
            f"--ranks needs --engine ray, got {engine!r}; or start them with torchrun "
            f"--nproc-per-node {ranks} -m evergraph run"
        )


@contextmanager
def launched() -> Iterator[Ranks]:
    """The ranks that torchrun has started, or this process alone."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        from evergraph.learn.ranks import ALONE

        yield ALONE
        return
    from evergraph.cluster.launch import by_torchrun

    with by_torchrun() as ranks:
        yield ranks


def learned_on_ray(
    config: Config,
    seeds: int,
    data: Dataset,
    ranks: int,
    address: str | None,
    checkpoint: Path | None,
    **files: Any,
) -> dict[str, Any]:
    """The result of a run on several ranks."""
    from evergraph.cluster.launch import on_ranks

    files["checkpoint"] = None if checkpoint is None else checkpoint.resolve()
    return on_ranks(partial(_run_on, config, tuple(range(seeds)), data, files), ranks, address)


def _run_on(
    config: Config, seeds: tuple[int, ...], data: Dataset, files: dict[str, Any], ranks: Ranks
) -> dict[str, Any]:
    from evergraph.evaluate.config import run_config

    return run_config(config, seeds, data, ranks=ranks, **files)


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
