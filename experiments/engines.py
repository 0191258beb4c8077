"""The same cells of an experiment in this process and over Ray: are their results the same?"""

from __future__ import annotations

import os
import time
from functools import partial
from itertools import product
from typing import Annotated, Any

import typer
from rich.table import Table

from evergraph.cli.console import AsJson, DataRoot, Out, complaints, publish, table_of, use_threads
from evergraph.cluster.tasks import on_ray
from evergraph.datasets import load
from evergraph.evaluate.config import Config, run_config
from evergraph.evaluate.evidence import provenance
from evergraph.evaluate.search import one_by_one
from evergraph.graph.dataset import Dataset

Row = dict[str, Any]


def untimed(value: Any) -> Any:
    """A result without what a clock has measured.

    Example:
        >>> untimed([{"accuracy_mean": 0.5, "items_per_second": 7.0, "runs": [{"seconds": 1.5}]}])
        [{'accuracy_mean': 0.5, 'runs': [{}]}]
    """
    if isinstance(value, dict):
        return {name: untimed(part) for name, part in value.items() if "second" not in name}
    return [untimed(part) for part in value] if isinstance(value, list) else value


def one(seeds: int, data: Dataset, config: Config) -> Row:
    """One cell."""
    use_threads(1)
    return run_config(config, tuple(range(seeds)), data)


def compared(configs: list[Config], seeds: int, data: Dataset) -> Row:
    """All cells twice, one by one and over Ray."""
    found: Row = {}
    for name, run in (("serial", one_by_one), ("ray", on_ray)):
        begun = time.perf_counter()
        found[name] = dict(run(partial(one, seeds, data), configs))
        found[f"{name}_seconds"] = time.perf_counter() - begun
    serial, parallel = found.pop("serial"), found.pop("ray")
    found["cells"] = [
        {
            "config": config.sized(data).plain(),
            "accuracy": serial[at]["accuracy_mean"],
            "equal": untimed(serial[at]) == untimed(parallel[at]),
        }
        for at, config in enumerate(configs)
    ]
    found["equal"] = all(cell["equal"] for cell in found["cells"])
    return found


def main(
    dataset: Annotated[str, typer.Option(help="One data set.")] = "cora",
    models: Annotated[str, typer.Option(help="Models, separated by commas.")] = "fgn,gcn,mlp",
    methods: Annotated[
        str, typer.Option(help="Methods, separated by commas.")
    ] = "finetune,replay,analytic",
    scenarios: Annotated[str, typer.Option(help="Streams, separated by commas.")] = "class,data",
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each cell.")] = 2,
    data_root: DataRoot = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Compute cells one by one and over Ray, and compare them."""
    parts = product(scenarios.split(","), models.split(","), methods.split(","))
    with complaints():
        data = load(dataset, data_root)
        configs = [
            Config(dataset=dataset, scenario=scenario, model=model, method=method)  # type: ignore[arg-type]
            for scenario, model, method in parts
        ]
        found: Row = {**provenance(), "seeds": [*range(seeds)], "cores": os.cpu_count()}
        found |= compared(configs, seeds, data)

    def table() -> Table:
        names = ("scenario", "model", "method")
        rows = [
            [*(cell["config"][n] for n in names), f"{cell['accuracy']:.3f}", str(cell["equal"])]
            for cell in found["cells"]
        ]
        return table_of("serial and over Ray", (*names, "accuracy", "equal"), rows)

    publish(found, as_json, out, table)


if __name__ == "__main__":
    typer.run(main)
