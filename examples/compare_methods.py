"""What forgetting looks like: one stream, three methods, and the accuracy after each class."""

import torch

from evergraph import (
    FGN,
    Analytic,
    Finetune,
    Learner,
    Replay,
    Reservoir,
    Training,
    node_continuum,
)
from evergraph.datasets import Growth, generate

if __name__ == "__main__":
    torch.manual_seed(0)
    data = generate(Growth(nodes=400, classes=4, features=100))
    stream = node_continuum(data, scenario="class")
    for name, method in (("finetune", Finetune()), ("replay", Replay()), ("analytic", Analytic())):
        model = FGN(data.graph.num_features)
        training = Training(lr=0.05, steps=1, replay_batch_size=50)
        memory = Reservoir(100) if method.needs_memory else None
        learner = Learner(model, method, memory, training)
        after = []
        for position, batch in enumerate(stream):
            learner.observe(batch)
            if stream.schedule.ends_task(position):
                after.append(learner.evaluate(stream.test(stream.test_groups[0])))
        score = learner.evaluate(stream.test())
        steps = ", ".join(f"{accuracy:.2f}" for accuracy in after)
        print(f"{name}: the first class after each class {steps}; all classes {score:.2f}")
