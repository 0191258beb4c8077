"""The commands behind the published numbers of feature matching."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from evergraph.cli.console import AsJson, Out, complaints, progress, publish
from evergraph.cli.match import open_matcher, quiet_threads
from evergraph.evaluate.evidence import provenance
from experiments.match_tables import compare_table, table_7
from experiments.matching_report import (
    compare_markdown,
    stream_markdown,
    table7_markdown,
)


def match_compare(
    seeds: Annotated[int, typer.Option(min=1, help="Splits of the pictures to run.")] = 5,
    work: Annotated[
        Path, typer.Option(help="Folder for what is done so far; a run that stopped goes on.")
    ] = Path("out/matching"),
    small: Annotated[bool, typer.Option(help="A few pairs only, to see that it runs.")] = False,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Train MLP, GCN, GAT and FGN and compare them with what needs no learning.

    On pictures that come with scikit-image and scikit-learn: homographies of photographs that
    training never saw, the stereo pair of a motorcycle, and rendered scenes. About three CPU
    minutes a seed. The trained matchers stay in the work folder.
    """
    from evergraph.apps.matching.fit import Fit
    from experiments.matching_experiment import Settings, aggregate, run_seed

    evidence = provenance()
    quiet_threads()
    settings = Settings()
    if small:
        settings = Settings(
            train=8, validation=4, test=4, surfaces=2, frames=6, stereo=(128,),
            fit=Fit(steps=4), kinds=("fgn", "mlp"), slow=2,
        )  # fmt: skip
    cells: list[dict[str, Any]] = []
    with complaints(), progress(as_json) as shown:
        task = shown.add_task("comparing", total=seeds)
        for seed in range(seeds):

            def follow(what: str, seed: int = seed) -> None:
                shown.update(task, description=f"seed {seed}: {what}")

            part = work / f"seed_{seed}.json"
            if not part.exists():
                found, matchers = run_seed(seed, settings, follow)
                work.mkdir(parents=True, exist_ok=True)
                for kind, matcher in matchers.items():
                    matcher.save(work / f"{kind}_{seed}.safetensors", {"seed": seed, **evidence})
                done = {**evidence, "config": settings.plain(), "cells": found}
                part.write_text(json.dumps(done, indent=1) + "\n")
            done = json.loads(part.read_text())
            if done["config"] != json.loads(json.dumps(settings.plain())):
                raise ValueError(f"{part} belongs to other settings; use another --work folder")
            cells += done["cells"]
            shown.advance(task)
    result: dict[str, Any] = {
        **{key: done[key] for key in evidence},
        "config": settings.plain(),
        "seeds": list(range(seeds)),
        "cells": aggregate(cells),
    }
    publish(result, as_json, out, lambda: compare_table(result["cells"]))
    beside(out, compare_markdown(result))


def match_stream(
    seeds: Annotated[int, typer.Option(min=1, help="Of scenes, network and memory.")] = 3,
    frames: Annotated[int, typer.Option(min=4, help="Of each sequence.")] = 9,
    sequences: Annotated[int, typer.Option(min=1, help="Of each domain.")] = 2,
    methods: Annotated[str, typer.Option(help="Methods, separated by commas.")] = "finetune,replay",
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Learn four scene domains one after the other, one pass, and tell what is forgotten.

    A fresh FGN follows rendered indoor, outdoor, dark and hard sequences with labels from depth
    and poses. After each domain it is tested on all four, with scenes and pictures that it never
    saw.
    """
    from experiments.matching_stream import Stream, domains, follow, summary

    evidence = provenance()
    quiet_threads()
    how = Stream(frames=frames, sequences=sequences)
    names = methods.split(",")
    runs = []
    with complaints(), progress(as_json) as shown:
        task = shown.add_task("rendering", total=seeds * len(names))
        for seed in range(seeds):
            train, test = domains(how, seed)
            for method in names:

                def tell(what: str) -> None:
                    shown.update(task, description=what)

                runs.append(follow(train, test, method, how, seed, report=tell))
                shown.advance(task)
    rows = summary(runs)
    result: dict[str, object] = {
        **evidence, "config": how.plain(), "seeds": list(range(seeds)), "rows": rows, "runs": runs,
    }  # fmt: skip

    def table() -> Table:
        shown = Table(title="F1 on all four domains after one pass, and how much was lost")
        shown.add_column("method")
        for name in ("F1", "± sd", "forgetting", "± sd", "memory, MB"):
            shown.add_column(name, justify="right")
        for row in rows:
            numbers = (row[k] for k in ("f1", "f1_sd", "forgetting", "forgetting_sd"))
            kept = f"{row['memory_bytes'] / 1e6:.1f}"
            shown.add_row(row["method"], *(f"{n:.3f}" for n in numbers), kept)
        return shown

    publish(result, as_json, out, table)
    beside(out, stream_markdown(result))


def match_render(
    out: Annotated[Path, typer.Argument(help="Folder to write to.")],
    sequences: Annotated[int, typer.Option(min=1, help="Of each category.")] = 2,
    frames: Annotated[int, typer.Option(min=2, help="Of each sequence.")] = 12,
    width: Annotated[int, typer.Option(min=32, help="Of the images; height is 3/4.")] = 320,
    seed: Annotated[int, typer.Option(help="Of scenes, cameras and noise.")] = 0,
) -> None:
    """Render textured scenes in TartanAir's layout: indoor, outdoor, dark and hard.

    OUT/CATEGORY/Easy/P### holds image_left, depth_left and pose_left.txt, ready for `match train`,
    `match evaluate`, `match video` and `paper matching`.
    """
    with complaints(), progress(False) as shown:
        from experiments.matching_render import CATEGORIES
        from experiments.matching_table7 import render_sequences

        task = shown.add_task("rendering", total=len(CATEGORIES) * sequences)
        render_sequences(out, sequences, frames, seed, width, lambda: shown.advance(task))
    Console().print(f"{len(CATEGORIES) * sequences} sequences are in {out}/", style="dim")


def paper_matching(
    folder: Annotated[
        Path | None,
        typer.Argument(help="TartanAir, or any part of it; default: scenes rendered for it."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Splits of the sequences.")] = 2,
    categories: Annotated[
        Path | None,
        typer.Option(help="JSON of your own: category to patterns of ENV/LEVEL/P###."),
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Training pairs.")] = 100,
    apart: Annotated[int, typer.Option(min=1, help="Frames between the two of a pair.")] = 1,
    each: Annotated[int, typer.Option(min=1, help="Rendered sequences of a category.")] = 5,
    frames: Annotated[int, typer.Option(min=2, help="Of each rendered sequence.")] = 8,
    picture: Annotated[
        Path | None, typer.Option(help="Write the tolerance curves (Fig. 3) here.")
    ] = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Table 7: mean matching error by scene category, GAT and FGN, beside the published values.

    In the paper's arrangement (two layers with attention on all points of an image, the most
    similar point, no check) and its metric (mean error of the 150 most confident matches, hidden
    points included); beside it precision, recall, F1 and pose AUC, and our candidate graph. The
    published values are of the whole TartanAir with learned descriptors: on anything else compare
    the rows with each other, not with them.
    """
    from tempfile import TemporaryDirectory

    from evergraph.apps.matching.tartanair import sequences
    from experiments import matching_table7 as table7
    from experiments.matching_figures import tolerance_curves

    evidence = provenance()
    quiet_threads()
    how = table7.Table7(apart=apart, steps=steps)
    with complaints(), progress(as_json) as shown, TemporaryDirectory() as place:
        patterns = table7.read_categories(categories)
        task = shown.add_task("rendering", total=seeds)
        root = folder
        if root is None:
            root = Path(place)
            table7.render_sequences(root, each, frames)

        def tell(what: str) -> None:
            shown.update(task, description=what)

        data = table7.load_pairs(sequences(root), how, tell)
        ours = open_matcher(None, "sift", how.points)
        runs = []
        for seed in range(seeds):
            runs.append(table7.run_seed(data, how, seed, ours, tell))
            shown.advance(task)
        rows = table7.tabulate(runs, patterns)
    result: dict[str, object] = {
        **evidence,
        "data": "rendered" if folder is None else folder.name,
        "sequences": len(data),
        "config": how.plain(),
        "seeds": list(range(seeds)),
        "rows": rows,
    }
    if picture is not None:
        tolerance_curves(rows, picture)
    publish(result, as_json, out, lambda: table_7(rows))
    beside(out, table7_markdown(result))


def bench_matching(
    repeats: Annotated[int, typer.Option(min=1, help="Of each measurement.")] = 7,
    most: Annotated[int, typer.Option(min=256, help="Points at the most.")] = 4096,
    as_json: AsJson = False,
    out: Out = None,
) -> None:
    """Time a pair against the number of points, after detection, on one core.

    Beside the whole match: OpenCV's brute-force matcher with ratio test, and one candidate in FGN
    and in a GCN of the same width.
    """
    from benchmarks.matching import POINTS, by_points

    evidence = provenance()
    quiet_threads()
    sizes = tuple(points for points in POINTS if points <= most)
    with complaints(), progress(as_json) as shown:
        task = shown.add_task("timing", total=len(sizes))
        rows = []
        for row in by_points(
            sizes, repeats, lambda points: shown.update(task, description=f"{points} points")
        ):
            rows.append(row)
            shown.advance(task)

    def table() -> Table:
        shown = Table(title="One pair after detection")
        names = {
            "points": ",d", "candidates": ",d", "match_ms": ".1f", "match_cpu_ms": ".1f",
            "graph_ms": ".1f", "opencv_ms": ".1f", "fgn_us_per_item": ".2f",
            "gcn_us_per_item": ".2f", "fgn_to_gcn": ".2f",
        }  # fmt: skip
        for name in names:
            shown.add_column(name.replace("_", " "), justify="right")
        for row in rows:
            shown.add_row(*(format(row[name], form) for name, form in names.items()))
        return shown

    publish({**evidence, "rows": rows}, as_json, out, table)


def beside(out: Path | None, text: str) -> None:
    """Write Markdown beside a JSON file."""
    if out is not None:
        out.with_suffix(".md").write_text(text)
