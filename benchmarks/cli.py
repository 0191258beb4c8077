"""The commands that measure this machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from evergraph.cli.console import AsJson, DataRoot, Out, progress, publish, use_threads
from evergraph.evaluate.evidence import provenance

if TYPE_CHECKING:
    from benchmarks.batches import Case

bench = typer.Typer(
    no_args_is_help=True, help="Measure this machine: ratios from one run, side by side."
)


@bench.command("speed")
def bench_speed(as_json: AsJson = False, out: Out = None, data_root: DataRoot = None) -> None:
    """Time a training step of FGN: the paper's F × F matrices against the exact fast forms.

    Both sides start from the same parameters and see the same batch; the table also shows how
    far their logits and gradients are apart. Without Cora and Citeseer at hand, batches with the
    same numbers of features, words and neighbors are generated.
    """
    from benchmarks.batches import dense_embeddings
    from benchmarks.speed import speed

    evidence = provenance()  # of the code as it starts, whatever changes meanwhile
    rows: list[dict[str, Any]] = []
    with progress(as_json) as shown:
        task = shown.add_task("comparing", total=3)
        for case in [*_citation_cases(data_root), dense_embeddings(256, 128, 20)]:
            shown.update(task, description=f"{case.name}, naive and fast in turns")
            rows.append(speed(case))
            shown.advance(task)

    def table() -> Table:
        shown = Table(title="One training step: F × F matrices against ours")
        shown.add_column("")
        for r in rows:
            mark = " (generated)" if r["origin"] == "generated" else ""
            shown.add_column(f"{r['dataset']}{mark}", justify="right")
        lines = {
            "features": ("num_features", ",.0f"),
            "naive, ms": ("naive_ms", ",.0f"),
            "naive, tuned by hand, ms": ("lean_ms", ",.0f"),
            "ours, ms": ("fast_ms", ",.2f"),
            "[bold]ratio to naive[/bold]": ("ratio", ",.1f"),
            "ratio to tuned": ("ratio_to_lean", ",.1f"),
            "largest difference, logits": ("max_abs_diff_logits", ".0e"),
            "largest difference, gradients": ("max_abs_diff_grad", ".0e"),
            "naive, peak MB": ("naive_peak_mb", ",.0f"),
            "ours, peak MB": ("fast_peak_mb", ",.1f"),
        }
        for line, (key, form) in lines.items():
            shown.add_row(line, *(format(r[key], form) for r in rows))
        return shown

    publish({**evidence, "cases": rows}, as_json, out, table)


def _citation_cases(data_root: Path | None) -> list[Case]:
    from benchmarks.batches import bags_of_words, from_dataset
    from evergraph.datasets import DatasetNotFound, load

    cases = []
    for name, words in (("cora", (1433, 18, 67, 4)), ("citeseer", (3703, 32, 91, 4))):
        try:
            cases.append(from_dataset(load(name, data_root, fetch=False), 10))
        except DatasetNotFound:
            cases.append(bags_of_words(10, *words, name=name))
    return cases


@bench.command("growth")
def bench_growth(
    stream: Annotated[
        int, typer.Option(help="Items of the generated stream that a whole learner follows.")
    ] = 100_000,
    as_json: AsJson = False,
    out: Out = None,
) -> None:
    """Time and bytes per item as features, neighborhoods and the stream grow.

    The exponent is the slope on a log-log scale: 0 means flat, 1 means linear. In the end a whole
    learner (FGN, replay, a reservoir of 500 items) follows a generated citation graph in order of
    arrival: time per item, resident memory, bytes of the reservoir, and the share of labels that
    it predicted before it learned them, tenth by tenth. Try --stream 1000000.
    """
    from benchmarks import growth
    from benchmarks.stream import follow
    from evergraph.datasets.generate import PRESETS, generate

    evidence = provenance()
    use_threads(1)
    with progress(as_json) as shown:
        task = shown.add_task("more features", total=growth.STREAM[-1])
        features = list(growth.by_features())
        shown.update(task, description="more neighbors")
        neighbors = list(growth.by_neighbors())
        shown.update(task, description="longer stream")
        items = list(growth.by_stream(report=lambda seen: shown.update(task, completed=seen)))
        task = shown.add_task("generating a graph to follow", total=stream)
        dataset = generate(replace(PRESETS["citation"], nodes=stream, train=1.0, test=0.0))
        shown.update(task, description="a learner follows the stream")
        tenths = list(follow(dataset, report=lambda seen: shown.update(task, completed=seen)))
    sweeps = {"features": features, "neighbors": neighbors, "items": items}
    result = {
        **evidence,
        **{f"by_{size}": rows for size, rows in sweeps.items()},
        "learner": tenths,
        "learner_exponents": {
            f"{value}_by_items": growth.exponent(tenths[1:], "items", value)
            for value in ("us_per_item", "resident_mb", "memory_bytes")
        },
        "exponents": {
            f"{value}_by_{size}": growth.exponent(rows, size, value)
            for size, rows in sweeps.items()
            for value in rows[0]
            if value != size
        },
    }

    def table() -> Table:
        shown = Table(title="Cost per item while things grow")
        for name in ("grows", "size", "µs per item", "bytes per item", "resident MB"):
            shown.add_column(name, justify="left" if name == "grows" else "right")
        for size, rows in sweeps.items():
            for row in rows:
                stored = f"{row['bytes_per_item']:,.0f}" if "bytes_per_item" in row else ""
                resident = f"{row['resident_mb']:.0f}" if "resident_mb" in row else ""
                shown.add_row(
                    size, f"{row[size]:,.0f}", f"{row['us_per_item']:.0f}", stored, resident
                )
            slope = growth.exponent(rows, size, "us_per_item")
            shown.add_row("", "exponent", f"[bold]{slope:.2f}[/bold]", end_section=True)
        for row in tenths:
            kept, resident = f"{row['memory_bytes']:,} in all", f"{row['resident_mb']:.0f}"
            cost = f"{row['us_per_item']:.0f}"
            shown.add_row("learner", f"{row['items']:,}", cost, kept, resident)
        return shown

    publish(result, as_json, out, table)
