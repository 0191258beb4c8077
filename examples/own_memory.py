"""A memory of your own: a rule that says which items stay."""

import numpy as np
import torch

from evergraph import FGN, Batch, Learner, Memory, Replay, Training, node_continuum
from evergraph.datasets import generate
from evergraph.learn import Slots


class Newest:
    """Keep the newest items."""

    name = "Newest"
    labels_only = False

    def add(self, slots: Slots, batch: Batch, rng: np.random.Generator) -> None:
        """Store all that is new, and evict from the front what is too much."""
        for item in batch:
            slots.put(item, key=0.0)
            while slots.full:
                slots.drop(0)


if __name__ == "__main__":
    torch.manual_seed(0)
    data = generate()
    stream = node_continuum(data, scenario="data")
    memory = Memory(Newest(), capacity=100)
    training = Training(steps=1, replay_batch_size=50)
    learner = Learner(FGN(data.graph.num_features), Replay(), memory, training)
    for batch in stream:
        learner.observe(batch)
    score = learner.evaluate(stream.test())
    print(f"accuracy {score:.2f} with {len(memory)} items, {memory.nbytes} bytes")
