"""A network on two ranks against one, with the same global batches; resumed on one and on three."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import torch
import typer
from rich.table import Table

from evergraph.cli.console import AsJson, DataRoot, Out, complaints, publish, table_of, write
from evergraph.cluster.launch import on_ranks
from evergraph.datasets import load
from evergraph.evaluate.config import Config, build
from evergraph.evaluate.evidence import provenance
from evergraph.evaluate.run import SCHEMA, Stopped, run
from evergraph.evaluate.significance import paired_difference
from evergraph.graph.dataset import Dataset
from evergraph.learn.parallel import ParallelLearner, part_of
from evergraph.learn.ranks import Ranks
from evergraph.learn.shared import SharedReservoir
from evergraph.nn.fgn import FGN
from evergraph.stream.continuum import Continuum

WINDOW = 10  # steps whose losses are averaged
VARIANTS = ("preset", "plain")
Row = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """What every rank does, for each seed.

    Attributes:
        config: of the runs.
        data: loaded before.
        variant: `preset`, or `plain`: without batch normalization and dropout.
        seeds: of everything that is random.
        folder: of checkpoints.
        resume: whether to begin with the checkpoint of half the stream; else it is written.
    """

    config: Config
    data: Dataset
    variant: str
    seeds: tuple[int, ...]
    folder: Path
    resume: bool = False

    def made(self, ranks: Ranks, seed: int) -> tuple[Continuum, ParallelLearner]:
        """The own part of the stream and a learner, the same as in `evergraph run`."""
        stream, plain = build(self.config, self.data, seed)
        model = plain.model
        if self.variant == "plain":
            known = self.config.sized(self.data).settings
            names = {"hops", "normalization", "concatenate"} & known.keys()
            settings = {name: known[name] for name in names}
            torch.manual_seed(seed)
            model = FGN(self.data.graph.num_features, 0, norm="none", **settings)
        memory = SharedReservoir(self.config.memory, seed, ranks)
        training, method = plain.training, plain.method
        learner = ParallelLearner(
            model, method, memory, training, seed, outliers="pass", ranks=ranks
        )
        return part_of(stream, ranks), learner

    def __call__(self, ranks: Ranks) -> list[Row]:
        """What each seed gives."""
        return [self._run(ranks, seed) for seed in self.seeds]

    def _run(self, ranks: Ranks, seed: int) -> Row:
        """One seed; on the way a checkpoint of half the stream, unless it begins with it."""
        made: list[ParallelLearner] = []
        losses: list[float] = []
        begun, cpu = time.perf_counter(), time.process_time()

        def make(seed: int) -> tuple[Continuum, ParallelLearner]:
            stream, learner = self.made(ranks, seed)
            made.append(learner)
            return stream, learner

        def half() -> bool:
            return made[-1].position == len(part) // 2

        part, _ = self.made(ranks, seed)
        name, config = self.folder / f"{self.variant}-{seed}", self.config.plain()
        files: dict[str, Any] = {
            "checkpoint": name, "resume": True, "every": np.inf, "ranks": ranks
        }  # fmt: skip
        note = lambda *_: losses.append(made[-1].joint_loss)  # noqa: E731
        if not self.resume:
            try:
                run(make, [seed], config, report=note, stop=half, **files)
            except Stopped:
                if ranks.is_first:
                    name.with_suffix(".half").write_bytes(name.read_bytes())
        elif ranks.is_first:
            name.write_bytes(name.with_suffix(".half").read_bytes())
        ranks.gather(None)  # the file is there
        found = run(make, [seed], config, report=note, **files)
        assert made[-1].memory is not None
        tensors, _ = made[-1].memory.state()
        return {
            "seed": seed,
            "ranks": ranks.size,
            "resumed": self.resume,
            "accuracy": found["accuracy_mean"],
            "losses": losses,
            "memory": sorted(tensors["node"].tolist()),
            "weights": {k: v.clone() for k, v in made[-1].model.state_dict().items()},
            "agree": len(set(ranks.gather(made[-1].digest()))) == 1,
            "wall_seconds": time.perf_counter() - begun,
            "cpu_seconds": sum(ranks.gather(time.process_time() - cpu)),
        }


def compared(one: Row, other: Row) -> Row:
    """How far two runs of the same seed are from each other."""
    start = len(one["losses"]) - len(other["losses"])
    first, second = np.array(one["losses"][start:]), np.array(other["losses"])
    weights = [(one["weights"][name] - part).abs().max() for name, part in other["weights"].items()]
    kept = {name: other[name] for name in ("seed", "ranks", "resumed", "accuracy", "agree")}
    return {
        **kept,
        "accuracy_of_one": one["accuracy"],
        "same_memory": one["memory"] == other["memory"],
        "loss_difference": float(np.abs(first - second).max()),
        "loss_ratio": float(second.mean() / first.mean()),
        "weight_difference": float(max(weights)),
        "wall_seconds": other["wall_seconds"],
        "cpu_seconds": other["cpu_seconds"],
        "wall_seconds_of_one": one["wall_seconds"],
        "losses": smooth(other["losses"]),
        "losses_of_one": smooth(one["losses"][start:]),
    }


def smooth(losses: list[float]) -> list[float]:
    """Means of a few losses at a time."""
    parts = np.split(np.array(losses), range(WINDOW, len(losses), WINDOW))
    return [round(float(part.mean()), 5) for part in parts]


def summary(rows: list[Row], variant: str) -> list[Row]:
    """Of each number of ranks the paired difference to one rank, over seeds."""
    found = []
    for ranks, resumed in sorted({(row["ranks"], row["resumed"]) for row in rows}):
        mine = [row for row in rows if (row["ranks"], row["resumed"]) == (ranks, resumed)]
        here, there = ([row[k] for row in mine] for k in ("accuracy", "accuracy_of_one"))
        found.append({
            "variant": variant,
            "ranks": ranks,
            "resumed": resumed,
            "accuracy": float(np.mean(here)),
            "accuracy_of_one": float(np.mean(there)),
            "difference": asdict(paired_difference(here, there)),
            "loss_ratio": float(np.mean([row["loss_ratio"] for row in mine])),
            "most_loss_difference": max(row["loss_difference"] for row in mine),
            "most_weight_difference": max(row["weight_difference"] for row in mine),
            "same_memory": all(row["same_memory"] for row in mine),
            "ranks_agree": all(row["agree"] for row in mine),
        })  # fmt: skip
    return found


def measure(config: Config, data: Dataset, variant: str, seed: int) -> list[Row]:
    """One and two ranks; two ranks of half a stream, then one and three of the rest."""
    with TemporaryDirectory() as place:
        task = partial(Task, config, data, variant, (seed,))
        alone, shared = Path(place) / "alone", Path(place) / "shared"
        alone.mkdir()
        shared.mkdir()
        (one,) = task(alone)(Ranks())
        rows = on_ranks(task(shared), 2)
        again = task(shared, resume=True)
        rows = [*rows, *again(Ranks()), *on_ranks(again, 3)]
    return [compared(one, row) for row in rows]


def main(
    dataset: Annotated[str, typer.Option(help="One data set.")] = "cora",
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each number of ranks.")] = 5,
    variants: Annotated[
        str, typer.Option(help="`preset`, and `plain`: no batch normalization, no dropout.")
    ] = ",".join(VARIANTS),
    limit: Annotated[int | None, typer.Option(help="Seeds of one call; default: all.")] = None,
    data_root: DataRoot = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Learn class by class with replay, the same batches on one rank and on several."""
    config, data = Config(dataset=dataset, outliers="pass"), load(dataset, data_root)
    settings = config.sized(data).plain()
    found: Row = {"schema": SCHEMA, **provenance(), "config": settings, "window": WINDOW}
    if out is not None and out.exists():
        there = json.loads(out.read_text())
        if any(there.get(name) != value for name, value in found.items()):
            raise ValueError(f"{out} is of another commit or configuration: move it")
        found = there
    found.setdefault("cells", {})
    wanted = [(variant, seed) for variant in variants.split(",") for seed in range(seeds)]
    missing = [one for one in wanted if str(one[1]) not in found["cells"].get(one[0], {})]
    with complaints("What is done is kept: call it again to continue."):
        for variant, seed in missing[:limit]:
            rows = measure(config, data, variant, seed)
            found["cells"].setdefault(variant, {})[str(seed)] = rows
            every = [
                (v, [r for part in by.values() for r in part]) for v, by in found["cells"].items()
            ]
            found["summary"] = [line for v, rows in every for line in summary(rows, v)]
            if out is not None:
                write(found, out)

    def table() -> Table:
        names = [name for name in found["summary"][0] if name != "difference"]
        text = [[str(line[name]) for name in names] for line in found["summary"]]
        return table_of(f"{dataset}, ranks against one", tuple(names), text)

    publish(found, as_json, None, table)


if __name__ == "__main__":
    typer.run(main)
