"""One pass over four scene domains: how much is forgotten, with and without a memory.

A fresh FGN follows rendered indoor, outdoor, dark and hard sequences with labels from depth and
poses. After each domain it is tested on all four, with scenes and pictures that it never saw:
`python -m experiments.matching_stream --out results/matching_stream.json`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch
import typer
from torch import Tensor

from evergraph.apps.matching.arrangements import (
    Kind,
    candidate_network,
    candidate_task,
    decide,
    graph_batch,
    probability,
)
from evergraph.apps.matching.candidates import propose
from evergraph.apps.matching.evaluate import judge, summarize
from evergraph.apps.matching.sources import photograph, split
from evergraph.apps.matching.train import examples
from evergraph.apps.matching.truth import Pair
from evergraph.cli.console import AsJson, Out, complaints, progress
from evergraph.cli.match import quiet_threads
from evergraph.evaluate.evidence import provenance
from evergraph.evaluate.metrics import maximum_forgetting
from evergraph.evaluate.run import Scores, run
from evergraph.learn.learner import Learner
from evergraph.learn.memory import Reservoir
from evergraph.learn.methods import METHODS
from evergraph.learn.training import Training
from evergraph.stream.batch import Batch, concatenate
from evergraph.stream.continuum import Continuum
from evergraph.stream.schedule import Schedule
from experiments.cells import markdown
from experiments.matching_results import origin, publish
from experiments.matching_scenes import HARSH, rendered_pairs

APART = 2  # frames between the two of a pair
TESTED = 500  # where the seeds of test sequences begin
Domains = Mapping[str, Sequence[Pair]]


@dataclass(frozen=True)
class Stream:
    """Sizes of the stream."""

    frames: int = 9  # of each sequence
    sequences: int = 2  # of each domain
    memory: int = 2000  # candidates that may be kept
    points: int = 256  # of each frame
    lr: float = 3e-3  # of Adam
    steps: int = 3  # on each new pair
    kind: Kind = "fgn"


@cache
def domains(how: Stream, seed: int) -> tuple[Domains, Domains]:
    """Pairs to learn from and to test on, of every category; they share no picture."""
    chosen = split(seed)
    parts = []
    for names, offset in ((chosen.train, 0), ((*chosen.test, *chosen.surfaces), TESTED)):
        textures = [photograph(name) for name in names]
        parts.append({
            domain: [
                pair
                for number in range(how.sequences)
                for pair in rendered_pairs(
                    category, textures, how.frames, 1000 * seed + offset + number, APART, how.points
                )
            ]
            for domain, category in HARSH.items()
        })  # fmt: skip
    return parts[0], parts[1]


@dataclass(frozen=True)
class DomainSource:
    """Candidate graphs to learn from, followed by test pairs, each with its domain."""

    train: Sequence[Batch]
    test: Sequence[tuple[str, Pair]]

    def __len__(self) -> int:
        return len(self.train) + len(self.test)

    def batch(self, index: Tensor, task: int = -1, position: int | None = None) -> Batch:
        """The candidates of training pairs, several graphs side by side in one."""
        found = concatenate([self.train[i] for i in index.tolist()])
        return replace(found, task=torch.full_like(found.task, task))

    def tested(self, index: Tensor) -> list[tuple[str, Pair]]:
        """The test pairs at these numbers."""
        return [self.test[number - len(self.train)] for number in index.tolist()]


def domain_continuum(train: Domains, test: Domains) -> Continuum:
    """The pairs of one domain after those of the other, and test pairs of each."""
    batches = {domain: examples(pairs) for domain, pairs in train.items()}
    shown = [(domain, pair) for domain, pairs in test.items() for pair in pairs]
    source = DomainSource([b for mine in batches.values() for b in mine], shown)
    numbers = torch.arange(len(source))
    sizes = [*map(len, batches.values()), *map(len, test.values())]
    groups = numbers.split(sizes)
    schedule = Schedule.from_groups(dict(zip(batches, groups, strict=False)), 1)
    tests = groups[len(batches) :]
    return Continuum(source, schedule, torch.cat(tests), tests, tuple(test))


def f1_by_domain(learner: Learner, stream: Continuum, index: Tensor, position: int) -> Scores:
    """F1 within 3 pixels on the test pairs of each domain."""
    assert isinstance(stream.source, DomainSource)
    scores: dict[str, list[Any]] = {}
    for domain, pair in stream.source.tested(index):
        graph = propose(pair.first, pair.second)
        found = decide(graph, probability(learner.output(graph_batch(graph))).numpy())
        scores.setdefault(domain, []).append(judge(pair, found))
    return {name: (summarize(mine)["f1"], len(mine)) for name, mine in scores.items()}


def new_learner(method: str, how: Stream, seed: int) -> Learner:
    """A learner that has seen nothing yet."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = candidate_network(how.kind)
    training = Training(
        optimizer="adam", lr=how.lr, steps=how.steps, replay_batches=how.steps,
        replay_batch_size=600,
    )  # fmt: skip
    chosen = METHODS[method]()
    memory = Reservoir(how.memory, seed=seed) if chosen.needs_memory else None
    return Learner(network, chosen, memory, training, seed, candidate_task())


def compare(
    methods: Sequence[str], how: Stream, seeds: Sequence[int], report: Any = lambda what: None
) -> list[dict[str, Any]]:
    """One cell for each method, as `run` has it; accuracies are F1, and labels are domains."""
    cells = []
    for method in methods:

        def build(seed: int, method: str = method) -> tuple[Continuum, Learner]:
            report(f"{method}, seed {seed}")
            return domain_continuum(*domains(how, seed)), new_learner(method, how, seed)

        cells.append(run(build, seeds, {"method": method, **asdict(how)}, scorer=f1_by_domain))
    return cells


def page(result: dict[str, Any]) -> str:
    """F1 and forgetting by method."""
    rows = []
    for cell in result["cells"]:
        lost = [maximum_forgetting(np.array(one["matrix"])) for one in cell["runs"]]
        spread = np.std(lost, ddof=1) if len(lost) > 1 else 0.0
        numbers = (cell["accuracy_mean"], cell["accuracy_sd"], np.mean(lost), spread)
        kept = f"{cell['memory_bytes'] / 1e6:.1f}"
        rows.append([cell["config"]["method"], *(f"{number:.3f}" for number in numbers), kept])
    columns = ("method", "F1", "± sd", "forgetting", "± sd", "memory, MB")
    parts = ["# One pass over four scene domains", origin(result), markdown(columns, rows)]
    return "\n\n".join(parts) + "\n"


def main(
    seeds: int = 3,
    frames: int = 9,
    sequences: int = 2,
    methods: str = "finetune,replay",
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Learn four scene domains one after the other, one pass, and tell what is forgotten."""
    evidence = provenance()
    quiet_threads()
    how, names = Stream(frames, sequences), methods.split(",")
    with complaints(), progress(as_json) as shown:
        task = shown.add_task("rendering", total=None)
        follow = lambda what: shown.update(task, description=what)  # noqa: E731
        cells = compare(names, how, range(seeds), follow)
    publish(page, as_json, out, seeds, **evidence, config=asdict(how), cells=cells)


if __name__ == "__main__":
    typer.run(main)
