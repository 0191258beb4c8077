"""A method of your own: learn again only from what the network gets wrong."""

import torch

from evergraph import FGN, Batch, Learner, Method, Reservoir, node_continuum
from evergraph.datasets import generate


class Mistakes(Method):
    """Rehearse the items of memory that are predicted wrongly."""

    needs_memory = True

    def observe(self, learner: Learner, batch: Batch) -> None:
        """Learn from a new batch, then from old mistakes."""
        learner.memory.add(batch)
        learner.descend(learner.loss(batch))
        for old in learner.replay():
            with torch.no_grad():
                wrong = learner.task.decode(learner.outputs(old)) != old.target
            if wrong.any():
                learner.descend(learner.loss(old.select(wrong.nonzero().flatten())))


if __name__ == "__main__":
    torch.manual_seed(0)
    data = generate()
    stream = node_continuum(data, scenario="class")
    learner = Learner(FGN(data.graph.num_features), Mistakes(), Reservoir(capacity=200))
    for batch in list(stream)[::4]:
        learner.observe(batch)
    score = learner.evaluate(stream.test())
    print(f"accuracy {score:.2f}, chance {1 / len(learner.classes):.2f}")
