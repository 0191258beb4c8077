"""A source of your own: windows of a signal, whose two sensors neighbor each other."""

import torch
from torch import Tensor

from evergraph import FGN, Batch, Continuum, Learner, Neighbors, Replay, Reservoir, Schedule


class Windows:
    """Four hundred windows of two sensors; the second lags behind by a class-dependent phase."""

    def __len__(self) -> int:
        return 400

    def batch(self, index: Tensor, task: int = -1, position: int | None = None) -> Batch:
        """The windows at these numbers, `(B, 2, 1, 16)`; every sensor owns the other."""
        label = index % 3
        start = index.unsqueeze(1) * 0.7 + torch.arange(16) * 0.8
        sensors = torch.stack([start.sin(), (start + label.unsqueeze(1)).sin()], dim=1)
        x = sensors.unsqueeze(2)
        around = Neighbors(x.flip(1).flatten(0, 1), owner=torch.arange(2 * len(index)))
        return Batch(x, around, label, task=torch.full_like(index, task), node=index)


if __name__ == "__main__":
    torch.manual_seed(0)
    source = Windows()
    schedule = Schedule.from_groups({"all": torch.arange(300)}, batch_size=20)
    stream = Continuum(source, schedule, test_index=torch.arange(300, 400))
    model = FGN(16, channels=(8, 8), features=(16, 16), concatenate=True, nodes=2)
    learner = Learner(model, Replay(), Reservoir(capacity=100))
    for batch in stream:
        learner.observe(batch)
    score = learner.evaluate(stream.test())
    print(f"accuracy {score:.2f}, chance {1 / 3:.2f}")
