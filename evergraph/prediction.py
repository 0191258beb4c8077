"""What a model answers; nothing heavy is imported, so that clients can use it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Prediction:
    """What a node is: `id`, `label`, its `probability`, and how well it fits no class.

    Attributes:
        label_set: classes that hold the right one with the probability that was asked for; those
            of the closed form, and `label`.
    """

    id: str | int
    label: str
    probability: float
    novelty: float
    label_set: tuple[str, ...]


@dataclass(frozen=True)
class Explanation:
    """What spoke for and against a class: parts that sum to the score of a node.

    Attributes:
        id: of the node.
        label: the class that is explained.
        score: what the linear solution gives this class.
        bias: the part of the score that every node has.
        neighbors: the parts of nodes, itself included, largest first: with `bias` the score.
        features: the parts of features, its own and those of neighbors, largest first: with
            `bias` the score.
    """

    id: str | int
    label: str
    score: float
    bias: float
    neighbors: tuple[tuple[str | int, float], ...]
    features: tuple[tuple[str, float], ...]
