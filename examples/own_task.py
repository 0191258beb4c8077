"""A task of your own: several yes or no questions about each node."""

import torch
from torch import Tensor, nn

from evergraph import FGN, Batch, Finetune, Learner, Task, node_continuum
from evergraph.datasets import generate
from evergraph.nn import Head


class Questions(Task):
    """D answers per item, 0 or 1."""

    def meet(self, head: Head, batch: Batch) -> None:
        """One output for each question."""
        head.grow(batch.target.shape[1])

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """Binary cross-entropy."""
        return nn.functional.binary_cross_entropy_with_logits(output, batch.target)

    def decode(self, output: Tensor) -> Tensor:
        """The more likely answers."""
        return (output > 0).float()

    def measure(self, output: Tensor, target: Tensor) -> float:
        """The share of correct answers."""
        return float((self.decode(output) == target).double().mean())


if __name__ == "__main__":
    torch.manual_seed(0)
    data = generate()
    answers = torch.stack([data.graph.labels < 3, data.graph.labels % 2 == 0], dim=1).float()
    stream = node_continuum(data, scenario="data", targets=answers)
    learner = Learner(FGN(data.graph.num_features), Finetune(), task=Questions())
    for batch in stream:
        learner.observe(batch)
    score = learner.evaluate(stream.test())
    print(f"{score:.2f} of the answers are correct")
