"""A network of your own: any torch module with a head that grows and a word on its items."""

import torch
from torch import Tensor, nn

from evergraph import Batch, Learner, Replay, Requires, Reservoir, Training, node_continuum
from evergraph.datasets import generate
from evergraph.feature_graph import neighborhood_mean
from evergraph.nn import Readout


class Perceptron(nn.Module):
    """A hidden layer over the words of a node and the mean of its neighbors."""

    requires = Requires(hops=1)  # what it asks of its items

    def __init__(self, num_features: int, width: int = 32) -> None:
        super().__init__()
        self.body = nn.Linear(2 * num_features, width)
        self.head = Readout(channels=1, features=width, outputs=0)

    def forward(self, batch: Batch) -> Tensor:
        """Outputs, `(B, K)`."""
        mean = neighborhood_mean(batch.neighbors, num_items=len(batch)).flatten(1)
        hidden = torch.relu(self.body(torch.cat([batch.x.to_dense(), mean], dim=1)))
        return self.head(hidden.unsqueeze(1), absent=torch.zeros(1))


if __name__ == "__main__":
    torch.manual_seed(0)
    data = generate()
    stream = node_continuum(data, scenario="class")
    training = Training(lr=0.1, steps=1, replay_batch_size=50)
    learner = Learner(Perceptron(data.graph.num_features), Replay(), Reservoir(200), training)
    for batch in stream:
        learner.observe(batch)
    score = learner.evaluate(stream.test())
    print(f"accuracy {score:.2f}, chance {1 / len(learner.classes):.2f}")
