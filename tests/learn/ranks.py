"""What ranks do in `test_parallel`: torchrun starts them, and the first writes what they saw."""

import json
import sys
from pathlib import Path

import torch
from torch import distributed as dist

from evergraph import FGN, Classification, Finetune, Replay, Training, node_continuum
from evergraph.cluster.launch import by_torchrun, joined
from evergraph.datasets import generate
from evergraph.datasets.generate import Growth
from evergraph.learn.parallel import ParallelLearner, part_of
from evergraph.learn.shared import SharedReservoir

DATA = generate(Growth(nodes=200, classes=3, features=20))
SETTINGS = {"layer": "transform", "channels": (4,), "features": (8,), "norm": "none"}
TRAINING = Training(lr=0.1, steps=2, averaging=0.5)
CAPACITY = 30


def network(**changes):
    torch.manual_seed(0)
    return FGN(20, **{**SETTINGS, **changes})


def parallel(ranks, **changes):
    memory = SharedReservoir(CAPACITY, 0, ranks)
    return ParallelLearner(network(**changes), Replay(), memory, TRAINING, ranks=ranks)


def learn(learner, ranks, start, end):
    losses = []
    for batch in list(part_of(node_continuum(DATA), ranks).batches(start))[: end - start]:
        learner.observe(batch)
        losses.append(learner.joint_loss)
    return losses


def known(learner):
    """What ranks must agree on, as JSON holds it."""
    tensors, _ = learner.memory.state()
    weights = {name: value.tolist() for name, value in learner.model.state_dict().items()}
    found = {"nodes": tensors["node"].tolist(), "weights": weights, "digest": learner.digest()}
    return {**found, "own": len(learner.memory.items), "classes": learner.classes}


def failure(action):
    try:
        action()
    except (ValueError, FloatingPointError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def two(ranks, folder):
    """Half of the stream, and a checkpoint of it."""
    learner = parallel(ranks)
    losses = learn(learner, ranks, 0, 6)
    learner.save(folder / "half", {"losses": losses})
    return {"half": ranks.gather(known(learner))}


def three(ranks, folder):
    """The rest of the stream, then what may go wrong, then streams of different lengths."""
    learner = parallel(ranks)
    losses = learner.load(folder / "half")["losses"]
    dealt = ranks.gather(len(learner.memory.items))
    losses += learn(learner, ranks, 6, 12)
    found = {"losses": losses, "dealt": dealt, "end": ranks.gather(known(learner))}
    batch = next(iter(node_continuum(DATA)))
    wrong = torch.full((len(batch),), -1) if ranks.rank == 1 else batch.target
    bad = type(batch)(batch.x, batch.neighbors, wrong, batch.task, batch.node)
    before = learner.digest()
    found["refused"] = ranks.gather(failure(lambda: learner.observe(bad)))
    found["missing"] = ranks.gather(failure(lambda: learner.load(folder / "nothing")))
    found["unchanged"] = all(ranks.gather(learner.digest() == before))
    every = list(node_continuum(DATA))
    other = ParallelLearner(network(), Finetune(), ranks=ranks)
    other.follow(every[: (5, 0, 2)[ranks.rank]])
    found["uneven"] = ranks.gather([other.position, other.classes, other.digest()])
    with_noise = parallel(ranks, layer="broadcast", features=None, norm="batch", dropout=0.5)
    learn(with_noise, ranks, 0, 4)
    found["noise"] = ranks.gather(with_noise.digest())
    mixed = lambda: ParallelLearner(  # noqa: E731
        network(), Finetune(), task=Classification(), ranks=ranks, seed=ranks.rank
    )
    found["mixed"] = ranks.gather(failure(mixed))
    return found


def main(folder):
    """Three processes: two of them learn half of a stream, then all three the rest."""
    with by_torchrun() as ranks:
        found = {}
        rank = ranks.rank
    if rank < 2:
        with joined(rank, 2, dist.FileStore(str(folder / "two"), 2)) as ranks:
            found |= two(ranks, folder)
    with joined(rank, 3, dist.FileStore(str(folder / "three"), 3)) as ranks:
        ranks.gather(None)
        found |= three(ranks, folder)
        if ranks.is_first:
            (folder / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
