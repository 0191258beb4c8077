"""Learning curves for TensorBoard or MLflow, if one of them is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Annotated

import typer

from evergraph.extras import require

Point = Callable[[int, Mapping[str, float | None]], None]
"""Takes a step, and the values of curves there by their names; None where there is no value."""


def nowhere(step: int, values: Mapping[str, float | None]) -> None:
    """Leave a point out."""


Target = Annotated[
    str | None,
    typer.Option(
        "--curves",
        help="Write learning curves: tensorboard:FOLDER, or mlflow:EXPERIMENT (the server is "
        "that of MLFLOW_TRACKING_URI).",
    ),
]


@contextmanager
def curves(target: str | None) -> Iterator[Point]:
    """Open what `--curves` names; without a target, points go nowhere."""
    if target is None:
        yield nowhere
        return
    kind, _, place = target.partition(":")
    if kind not in ("tensorboard", "mlflow") or not place:
        raise ValueError(
            f"--curves must be tensorboard:FOLDER or mlflow:EXPERIMENT, got {target!r}"
        )
    if kind == "mlflow":
        mlflow = require("mlflow", "mlflow")
        mlflow.set_experiment(place)
        with mlflow.start_run():
            yield lambda step, values: mlflow.log_metrics(_known(values), step=step)
        return
    with closing(require("tensorboardX", "tensorboard").SummaryWriter(place)) as writer:

        def point(step: int, values: Mapping[str, float | None]) -> None:
            for name, value in _known(values).items():
                writer.add_scalar(name, value, step)

        yield point


def _known(values: Mapping[str, float | None]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items() if value is not None}
