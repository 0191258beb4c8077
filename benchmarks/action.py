"""What a window costs, every model in turns in one run: `python -m benchmarks.action --json`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any

import torch
import typer

from benchmarks.measure import milliseconds
from evergraph.apps.action.network import network
from evergraph.apps.action.published import DSADS_LAYOUT
from evergraph.apps.action.rich import CLOSED
from evergraph.apps.action.teaching import CLOSED_BATCH, RecognizerConfig, built
from evergraph.apps.action.windows import as_batch
from evergraph.cli.console import AsJson, Out, publish, table_of, use_threads
from evergraph.evaluate.evidence import provenance
from evergraph.learn.learner import Learner
from evergraph.learn.methods import Finetune
from evergraph.learn.training import Training

MODELS = ("fgn", "gat", "gcn", "appnp", "gat-plain", "gcn-plain", "mlp", "cnn", *CLOSED)
FEATURES, CLASSES, BATCH = 25, 19, 100  # windows as DSADS has them
PAPER_RATIO = 5.76 / 5.48  # FGN to GAT, Table 9
CLOCKS = ((time.perf_counter, ""), (time.process_time, "_processor"))


def cost(rounds: int = 9, models: tuple[str, ...] = MODELS) -> list[dict[str, Any]]:
    """Median milliseconds per window to predict and to learn; models take turns.

    A network learns a batch in one step of many; a closed form in its only one, with as many
    windows as the program gives it. A batch keeps what a closed form reads, so that each is new.
    """
    sensors, channels = DSADS_LAYOUT.shape
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(BATCH, 2 * sensors, channels, FEATURES, generator=draw)
    target, many = torch.arange(BATCH) % CLASSES, CLOSED_BATCH // BATCH
    x_many, target_many = x.repeat(many, 1, 1, 1), target.repeat(many)
    steps: dict[str, dict[str, Callable[[], object]]] = {"predict": {}, "learn": {}}
    rows: list[dict[str, Any]] = []
    for name in models:
        if name in CLOSED:
            learner = built(name, DSADS_LAYOUT, RecognizerConfig(model=name))
        else:
            model: Any = network(name, DSADS_LAYOUT, FEATURES)
            training = Training(optimizer="adam", lr=1e-3, steps=1)
            learner = Learner(model, Finetune(), training=training)
        learner.model.encoder.update(x)
        learner.observe(as_batch(x, target))
        size = sum(p.numel() for p in learner.model.parameters())
        rows.append({"model": name, "parameters": size})
        given = (x_many, target_many) if name in CLOSED else (x, target)
        steps["predict"][name] = lambda learner=learner: learner.predict(as_batch(x, target))  # type: ignore[misc]
        steps["learn"][name] = lambda learner=learner, given=given: learner.observe(  # type: ignore[misc]
            as_batch(*given)
        )
    for clock, end in CLOCKS:
        for act, those in steps.items():
            found = milliseconds(those, dict.fromkeys(models, rounds), clock)
            for row in rows:
                wide = act == "learn" and row["model"] in CLOSED
                each = found[row["model"]] / (CLOSED_BATCH if wide else BATCH)
                row[f"{act}_ms_per_window{end}"] = each
                row[f"{act}_ratio_to_gat{end}"] = each / (found["gat"] / BATCH)
    return rows


def main(
    rounds: Annotated[int, typer.Option(min=1, help="Turns that each network takes.")] = 15,
    as_json: AsJson = False,
    out: Out = None,
) -> None:
    """Time a window: FGN against GAT with the same number of parameters, and the others.

    Closed forms have all blocks of features.
    """
    use_threads(1)
    rows = cost(rounds)
    ratios = {
        f"fgn_to_gat_{act}{end}": rows[0][f"{act}_ratio_to_gat{end}"]
        for _, end in CLOCKS
        for act in ("predict", "learn")
    }
    result = {**provenance(), "cases": rows, **ratios, "paper_fgn_to_gat": PAPER_RATIO}

    title = "One window, in batches of 100; _processor is CPU time"
    cells = [[f"{v:.3f}" if isinstance(v, float) else str(v) for v in r.values()] for r in rows]
    publish(result, as_json, out, lambda: table_of(title, tuple(rows[0]), cells))


if __name__ == "__main__":
    typer.run(main)
