"""Tasks: classification, regression and link prediction.

A task defines loss, prediction and measure, so that learner, memory and method are the same for
all of them. An item may be a node, a sub-graph or a pair of nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss

from evergraph.checks import LABEL_LIMIT
from evergraph.nn.heads import Head
from evergraph.stream.batch import Batch


class Task(Protocol):
    """What a target means, how outputs are trained toward it and read back.

    Subclass it and write `meet`, `loss`, `decode` and `measure`; all else has a default.

    Example:
        >>> from evergraph import Classification, LinkPrediction, Regression
        >>> labels = torch.tensor([0, 1, 1])
        >>> [task.groups(labels) for task in (Classification(), LinkPrediction())]
        [[0, 1, 1], [0, 1, 1]]
        >>> Regression().groups(torch.tensor([0.5, 0.7]))  # numbers have no classes
        [0, 0]
    """

    def check(self, batch: Batch) -> None:
        """Raise a ValueError if the targets of a batch cannot be learned from."""
        return

    def meet(self, head: Head, batch: Batch) -> None:
        """Make room in the head for what is new in the targets of a batch."""
        ...

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """The training loss of outputs `(B, K)`."""
        ...

    def decode(self, output: Tensor) -> Tensor:
        """What outputs predict, in the terms of the targets."""
        ...

    def measure(self, output: Tensor, target: Tensor) -> float:
        """How well outputs predict, at most 1; NaN without items."""
        ...

    def groups(self, target: Tensor) -> list[int]:
        """A number for each target, items with the same one are kept in balance: the labels."""
        return [0] * len(target) if target.is_floating_point() else list(target.tolist())

    def state(self) -> dict[str, Any]:
        """All that is needed to resume, as JSON can hold it."""
        return {}

    def load_state(self, values: Mapping[str, Any]) -> None:
        """Resume from a state."""
        return


@dataclass(eq=False)
class Classification(Task):
    """One label per item; the head grows when a new label comes.

    For nodes, sub-graphs and edges alike. Outputs are in the order in which classes were met.

    Attributes:
        ignore_unknown: accept items without a label (-1) and learn nothing from them; they are
            there as neighbors of others. By default they are refused.
        classes: the labels met so far.

    Example:
        >>> task = Classification()
        >>> task.classes = [7, 3]
        >>> task.decode(torch.tensor([[0.1, 0.9]]))
        tensor([3])
    """

    ignore_unknown: bool = False
    classes: list[int] = field(default_factory=list, init=False, repr=False)

    def check(self, batch: Batch) -> None:
        """Labels must be whole numbers from 0 on."""
        target = batch.target
        if target.dim() != 1 or target.dtype.is_floating_point or target.dtype == torch.bool:
            raise ValueError(
                f"labels must be integers of shape (B,), got {target.dtype} of shape "
                f"{tuple(target.shape)}; encode them, or use task=Regression() for numbers"
            )
        low, high = (int(v) for v in target.aminmax())
        if low < -int(self.ignore_unknown) or high >= LABEL_LIMIT:
            wrong = low if low < 0 else high
            raise ValueError(f"labels must be 0 or more and below 2^31 to learn from, got {wrong}")

    def meet(self, head: Head, batch: Batch) -> None:
        """Number the labels that are new."""
        found = set(batch.target.tolist()).difference(self.classes)
        fresh = sorted(label for label in found if label >= 0)
        if fresh:
            self.classes += fresh
            head.grow(len(self.classes))

    def columns(self, target: Tensor) -> Tensor:
        """The position of each label among `classes`."""
        place = {label: column for column, label in enumerate(self.classes)} | {-1: -1}
        return torch.tensor([place[label] for label in target.tolist()], dtype=torch.int64)

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """Cross-entropy over the classes met so far."""
        return cross_entropy(output, self.columns(batch.target), ignore_index=-1)

    def decode(self, output: Tensor) -> Tensor:
        """The label of each item, `(B,)`."""
        return torch.tensor(self.classes)[output.argmax(-1)]

    def measure(self, output: Tensor, target: Tensor) -> float:
        """Accuracy."""
        return float((self.decode(output) == target).double().mean())

    def state(self) -> dict[str, Any]:
        """The classes in their order."""
        return {"classes": self.classes}

    def load_state(self, values: Mapping[str, Any]) -> None:
        """Take the classes over."""
        classes = list(values["classes"])
        if not all(type(label) is int and label >= 0 for label in classes):
            raise ValueError(f"classes must be whole numbers of 0 or more, got {classes[:5]}")
        if len(set(classes)) != len(classes):
            raise ValueError(f"classes must differ, got {classes[:5]}")
        self.classes = classes


@dataclass(eq=False)
class Regression(Task):
    """D numbers per item, by the squared error; `measure` is R², the share of variance explained.

    Attributes:
        outputs: D.

    Example:
        >>> task = Regression(outputs=1)
        >>> truth = torch.tensor([[1.0], [2.0], [3.0]])
        >>> task.measure(truth, truth), task.measure(torch.full((3, 1), 2.0), truth)
        (1.0, 0.0)
    """

    outputs: int = 1

    def check(self, batch: Batch) -> None:
        """Targets must be finite floating point numbers, `(B, D)`."""
        target = batch.target
        if not target.dtype.is_floating_point or target.shape != (len(batch), self.outputs):
            raise ValueError(
                f"targets must be floating point of shape (B, {self.outputs}), got "
                f"{target.dtype} of shape {tuple(target.shape)}; use task=Classification() for "
                "labels"
            )
        wrong = ~target.isfinite()
        if bool(wrong.any()):
            item = int(wrong.any(1).nonzero()[0])
            raise ValueError(f"targets must be finite, got {target[item].tolist()} at item {item}")

    def meet(self, head: Head, batch: Batch) -> None:
        """The number of outputs is known."""
        head.grow(self.outputs)

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """The mean squared error."""
        return mse_loss(output, batch.target.to(output.dtype))

    def decode(self, output: Tensor) -> Tensor:
        """The outputs themselves."""
        return output

    def measure(self, output: Tensor, target: Tensor) -> float:
        """R²: 1 is perfect, 0 is no better than the mean."""
        error = (output.double() - target.double()).square().sum()
        spread = (target.double() - target.double().mean(0)).square().sum()
        return float(1 - error / spread)


@dataclass(eq=False)
class LinkPrediction(Task):
    """Whether two nodes are linked: target 1 or 0, one logit; `measure` is the area under ROC.

    Example:
        >>> task = LinkPrediction()
        >>> logits = torch.tensor([[2.0], [0.0], [-2.0]])
        >>> task.decode(logits).round(decimals=2)
        tensor([0.8800, 0.5000, 0.1200])
        >>> task.measure(logits, torch.tensor([1, 0, 0]))
        1.0
    """

    def check(self, batch: Batch) -> None:
        """Targets must be 0 or 1, and items pairs."""
        target = batch.target
        if target.dim() != 1 or target.dtype != torch.int64 or bool(((target >> 1) != 0).any()):
            raise ValueError(
                "targets of links must be int64, 0 or 1, of shape (B,), got "
                f"{target.dtype} of shape {tuple(target.shape)} with values "
                f"{target.unique().tolist()[:5]}; use Classification() for kinds of edges"
            )
        if batch.nodes_per_item != 2:
            raise ValueError(
                f"links are items of two nodes, got {batch.nodes_per_item}; use link_continuum"
            )

    def meet(self, head: Head, batch: Batch) -> None:
        """One logit says it all."""
        head.grow(1)

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """Binary cross-entropy."""
        return binary_cross_entropy_with_logits(output[:, 0], batch.target.to(output.dtype))

    def decode(self, output: Tensor) -> Tensor:
        """The probability of a link, `(B,)`."""
        return output[:, 0].sigmoid()

    def measure(self, output: Tensor, target: Tensor) -> float:
        """The chance that a link gets a higher score than a pair that is none; ties count half."""
        order = output[:, 0].double()
        _, place, count = torch.unique(order, return_inverse=True, return_counts=True)
        rank = (count.cumsum(0) - (count - 1) / 2)[place]  # of equal scores, the mean rank
        positive = int(target.sum())
        negative = len(target) - positive
        if not positive or not negative:
            return float("nan")
        above = rank[target == 1].sum() - positive * (positive + 1) / 2
        return float(above / (positive * negative))
