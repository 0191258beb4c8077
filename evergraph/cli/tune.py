"""The commands that look for settings and for data: tune, datasets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.table import Table

from evergraph.cli.console import (
    AsJson,
    DataRoot,
    Out,
    Threads,
    complaints,
    progress,
    publish,
    remark,
    table_of,
    use_threads,
    write,
)
from evergraph.cli.engines import Address, Device, EngineName, check_place, runner
from evergraph.cli.learn import (
    Capacity,
    DatasetName,
    MethodName,
    ModelName,
    Seeds,
    load_or_generate,
)
from evergraph.evaluate.evidence import provenance


def tune(
    dataset: DatasetName = "cora",
    model: ModelName = "fgn",
    method: MethodName = "replay",
    memory: Capacity = 500,
    seeds: Seeds = 2,
    threads: Threads = 1,
    device: Device = "cpu",
    engine: EngineName = "local",
    address: Address = None,
    data_root: DataRoot = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Try all candidate settings on validation nodes.

    These are taken from the training part. Every network gets as many candidates, with the same
    learning rates, so that none is better tuned than others; the closed form gets strengths, and
    one pass serves them all. The test nodes are never looked at. What --out has already is not
    tried again, so that a search can be stopped and called again.
    """
    from evergraph.evaluate import search
    from evergraph.evaluate.config import Config

    keys = {"dataset": dataset, "model": model, "method": method, "memory": memory, "seeds": seeds}
    about, name = {**provenance(), **keys}, f"{dataset}, {model}, {method}"
    use_threads(threads)
    with complaints(), progress(as_json) as shown:
        config = Config(dataset=dataset, model=model, method=method, memory=memory)
        data, config = load_or_generate(config, data_root, shown, as_json)
        task = shown.add_task(name, total=None)

        def report(rows: list[search.Row], total: int) -> None:
            shown.update(task, completed=len(rows), total=total)
            if out is not None:
                write({**about, "trials": rows}, out)

        known = [] if out is None else _known_trials(out, keys)
        rows = search.search(
            config,
            data,
            seeds=tuple(range(seeds)),
            known=known,
            report=report,
            run=runner(engine, address),
            device=check_place(device, engine),
        )

    def table() -> Table:
        columns = ("settings", *rows[0]["validation_accuracy"], "mean")
        text = []
        for row in rows:
            numbers = *row["validation_accuracy"].values(), row["validation_mean"]
            settings = ", ".join(f"{key} {value}" for key, value in row["settings"].items())
            text.append([settings, *(f"{number:.4f}" for number in numbers)])
        return table_of(f"{name}: accuracy on validation nodes", columns, text)

    publish({**about, "trials": rows}, as_json, out, table)
    if not as_json:
        chosen = f"--dataset {dataset} --model {model} --method {method}"
        found = out or "FILE, after a search with --out FILE"
        remark(f"To use the best: evergraph run {chosen} --settings {found}")


def _known_trials(out: Path, keys: dict[str, Any]) -> list[dict[str, Any]]:
    """The trials of an earlier call for the same search."""
    if not out.exists():
        return []
    try:
        found = json.loads(out.read_text())
        trials: list[dict[str, Any]] = found["trials"]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{out} is no search: {error}; move it, or use another --out") from error
    differ = [
        f"{key} is {found.get(key)!r} there, {value!r} here"
        for key, value in keys.items()
        if found.get(key) != value
    ]
    if differ:
        raise ValueError(
            f"{out} belongs to another search: {'; '.join(differ)}; use the same options, or "
            "another --out"
        )
    return trials


def datasets(data_root: DataRoot = None, as_json: AsJson = False) -> None:
    """List data sets: here, to be fetched, or generated."""
    from dataclasses import asdict

    from evergraph.datasets import available

    rows = [asdict(entry) for entry in available(data_root)]
    counts = ("nodes", "edges", "features", "classes")
    text = [[row["name"], row["state"], *(f"{row[key]:,}" for key in counts)] for row in rows]
    table = table_of("Data sets", ("name", "state", *counts), text, left=2)
    publish(rows, as_json, None, lambda: table)
