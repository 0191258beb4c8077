"""The commands that measure action recognition: the paper's tables, and the cost of a window."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from evergraph.cli.console import AsJson, DataRoot, Out, complaints, progress, publish, use_threads
from evergraph.evaluate.evidence import provenance

DSADS = Path("dsads") / "dsads_int16.npz"


def paper_action(
    data: Annotated[
        str | None,
        typer.Option(help="Recordings, as for `action train`; default: DSADS in --data-root."),
    ] = None,
    tables: Annotated[
        str, typer.Option(help="Which: regular, lifelong, subjects, class, ablation.")
    ] = "regular,lifelong",
    seeds: Annotated[int, typer.Option(min=1, help="How many runs of each cell.")] = 5,
    runs: Annotated[
        Path, typer.Option(help="Runs are written down here, and not made again.")
    ] = Path("out/action_runs.jsonl"),
    search: Annotated[
        Path | None,
        typer.Option(
            help="Take the settings of each network from this file; what is not there is "
            "searched on validation windows first and written."
        ),
    ] = None,
    pictures: Annotated[Path | None, typer.Option(help="Folder for the pictures.")] = None,
    only_show: Annotated[bool, typer.Option(help="Make no runs, show those at hand.")] = False,
    data_root: DataRoot = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Rerun Tables 5, 6 and 9 (forgetting, precision, running time) beside the published values.

    The paper's WARD cannot be had everywhere, so the default is DSADS: five sensors too, but 19
    activities. FGN, GAT, GCN, APPNP, MLP, a CNN, ExtraTrees and a ridge regression are run
    on the same windows. --out gets one JSON cell per line of the tables, and a .md beside it. A
    run that was stopped goes on where it was.
    """
    from evergraph.apps.action import tables as plan
    from evergraph.apps.action.sources import load
    from experiments import action_figures, action_report as action_tables

    evidence = provenance()
    use_threads(1)
    with complaints(), progress(as_json) as shown:
        recordings = load(str(data or _dsads(data_root)))
        names = tuple(part.strip() for part in tables.split(","))
        chosen = plan.cells(
            names, seeds, **_settings(plan, search, names, recordings, evidence, shown)
        )
        ledger = plan.Ledger(runs)
        if not only_show:
            _make(plan, chosen, recordings, ledger, evidence, shown)
        cells = plan.collect(chosen, ledger)
        if not cells:
            raise ValueError(f"{runs} holds none of these runs; leave out --only-show to make them")
    rows = action_tables.beside_paper(cells, plan.PAPER)
    if out is not None:
        about = _about(cells, recordings.name)
        text = action_tables.document(cells, recordings.activities, plan.PAPER, about)
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(cells, indent=1) + "\n")
        out.with_suffix(".md").write_text(text)
    if pictures is not None:
        _draw(action_figures, cells, recordings.activities, pictures)
    if as_json:
        typer.echo(json.dumps(cells, indent=1))
        return
    Console().print(_table("The paper's tables (WARD) and ours", rows))
    for table in action_tables.TITLES:
        if any(cell["table"] == table for cell in cells):
            Console().print(_table(action_tables.TITLES[table], action_tables.lines(cells, table)))


def bench_action(
    rounds: Annotated[int, typer.Option(min=1, help="Turns that each network takes.")] = 15,
    as_json: AsJson = False,
    out: Out = None,
) -> None:
    """Time a window: FGN against GAT with the same number of parameters, and the others.

    All networks take turns on the same windows (5 sensors, 9 channels, 50 samples), one thread.
    The paper's ratio of FGN to GAT is 1.05.
    """
    from benchmarks.action import cost

    evidence = provenance()
    use_threads(1)
    with progress(as_json) as shown:
        shown.add_task("all networks in turns", total=None)
        rows = cost(rounds)
    fgn = rows[0]
    result = {
        **evidence, "cases": rows, "fgn_to_gat_predict": fgn["predict_ratio_to_gat"],
        "fgn_to_gat_learn": fgn["learn_ratio_to_gat"],
        "fgn_to_gat_predict_processor": fgn["predict_ratio_to_gat_processor"],
        "fgn_to_gat_learn_processor": fgn["learn_ratio_to_gat_processor"],
        "paper_fgn_to_gat": 5.76 / 5.48,
    }  # fmt: skip

    def table() -> Table:
        head = [
            "network", "parameters", "predict, ms", "learn, ms", "predict / GAT", "learn / GAT",
            "predict / GAT, processor", "learn / GAT, processor",
        ]  # fmt: skip
        ratios = ("predict_ratio_to_gat", "learn_ratio_to_gat")
        body = [
            [
                row["model"], f"{row['parameters']:,}", f"{row['predict_ms_per_window']:.3f}",
                f"{row['learn_ms_per_window']:.3f}",
                *(f"{row[name + end]:.2f}" for end in ("", "_processor") for name in ratios),
            ]
            for row in rows
        ]  # fmt: skip
        return _table("One window, in batches of 100", [head, *body])

    publish(result, as_json, out, table)


def bench_action_stream(
    data: Annotated[
        str | None,
        typer.Option(help="Recordings, as for `action train`; default: DSADS in --data-root."),
    ] = None,
    activity: Annotated[str, typer.Option(help="What to teach last.")] = "rowing",
    subject: Annotated[str, typer.Option(help="Whose recording teaches it.")] = "p1",
    seconds: Annotated[float, typer.Option(help="Recorded time to feed.")] = 3600.0,
    speed: Annotated[float, typer.Option(help="How many times faster than real time.")] = 100.0,
    stride: Annotated[int, typer.Option(help="Samples between training windows.")] = 100,
    epochs: Annotated[int, typer.Option(help="Passes over the known activities.")] = 3,
    data_root: DataRoot = None,
    as_json: AsJson = False,
    out: Out = None,
) -> None:
    """Teach a trained model one new activity, then feed it an hour of samples through a pipe.

    The model knows all activities but one and learns that from a single recording of one person:
    its recall, and what the others lose. Then `evergraph action predict` reads samples at many
    times real time: how far it lags behind, and whether its memory grows.
    """
    import tempfile

    from evergraph.apps.action.recognizer import Settings
    from evergraph.apps.action.sources import load
    from benchmarks.action_stream import pipe, teach

    evidence = provenance()
    use_threads(1)
    with complaints(), progress(as_json) as shown, tempfile.TemporaryDirectory() as folder:
        task = shown.add_task("learning", total=None)

        def report(done: int, total: int) -> None:
            shown.update(task, completed=done, total=total)

        recordings = load(str(data or _dsads(data_root)))
        settings = Settings(stride=stride, epochs=epochs)
        lesson, recognizer = teach(recordings, activity, subject, settings, report)
        recognizer.save(Path(folder))
        shown.update(task, description="an hour through a pipe")
        stream = pipe(Path(folder), recordings, seconds, speed, report)
    config = {"stride": stride, "epochs": epochs, "seed": settings.seed, "data": recordings.name}
    result = {**evidence, "config": config, "lesson": lesson, "pipe": stream}

    def table() -> Table:
        rows = [["what", "value"]]
        for part in (lesson, stream):
            for name, value in part.items():
                if not isinstance(value, list):
                    shown = f"{value:.4g}" if isinstance(value, float) else str(value)
                    rows.append([name.replace("_", " "), shown])
        return _table("A recognizer at work", rows)

    publish(result, as_json, out, table)


def _dsads(data_root: Path | None) -> Path:
    if data_root is None or not (data_root / DSADS).is_file():
        raise ValueError(
            f"DSADS is not at hand: name a folder that holds {DSADS} with --data-root (or "
            "EVERGRAPH_DATA), or recordings with --data"
        )
    return data_root / DSADS


def _settings(
    plan: Any,
    search: Path | None,
    names: tuple[str, ...],
    recordings: Any,
    evidence: Any,
    shown: Any,
) -> dict[str, Any]:
    """What a search on validation windows found, as `tables.cells` takes it."""
    if search is None:
        return {}
    task = shown.add_task("", total=None)

    def report(name: str, seen: int, total: int) -> None:
        shown.update(task, description=name, completed=seen, total=total)

    found = json.loads(search.read_text()) if search.exists() else {}
    search.parent.mkdir(parents=True, exist_ok=True)

    def trials(part: str, made: Callable[[list[Any]], Iterable[Any]]) -> list[Any]:
        """All trials of a part, those that are new written down one by one."""
        known: list[Any] = found.setdefault(part, {}).setdefault("trials", [])
        for trial in made(list(known)):
            known.append({**trial, "commit": evidence["commit"]})
            found[part] = {**evidence, **found[part]}
            search.write_text(json.dumps(found, indent=1) + "\n")
        return known

    def rates(table: str) -> dict[str, float]:
        made = trials(table, lambda known: plan.search(recordings, table, report, known))
        found[table]["config"] = asdict(plan.SEARCHES[table][0])
        best: dict[str, float] = plan.best_rates(made)
        return best

    settings: dict[str, Any] = {"rates": rates("regular")}
    if {"lifelong", "class"} & set(names):
        settings["stream_rates"] = rates("lifelong")
    if "subjects" in names:
        made = trials("subjects", lambda known: plan.search_subjects(recordings, report, known))
        settings["of_pairs"] = plan.best_for_subjects(made)
    search.write_text(json.dumps(found, indent=1) + "\n")
    shown.remove_task(task)
    return settings


def _make(
    plan: Any, chosen: list[Any], recordings: Any, ledger: Any, evidence: Any, shown: Any
) -> None:
    task = shown.add_task("", total=None)

    def report(name: str, seen: int, total: int) -> None:
        shown.update(task, description=name, completed=seen, total=total)

    every = shown.add_task("all runs", total=sum(cell.runs for cell in chosen))
    for _ in plan.fill(chosen, recordings, ledger, evidence, report):
        shown.advance(every)


def _about(cells: list[dict[str, Any]], name: str) -> str:
    config = cells[0]["config"]
    text = (
        f"Recordings: {name}. Windows of {config['length']} samples, one every {config['stride']} "
        f"samples to train and every {config['test_stride']} to test. "
    )
    regular = next((cell["config"] for cell in cells if cell["stream"] == "regular"), None)
    if regular is not None:
        text += (
            f"Regular learning: {regular['epochs']} passes, batches of {regular['batch_size']}. "
        )
    for name, table in (("Lifelong", "lifelong"), ("Class by class", "class")):
        found = (c for c in cells if c["table"] == table and c["method"] == "replay")
        replay = next((cell["config"] for cell in found), None)
        if replay is not None:
            text += (
                f"{name}: one pass in batches of {replay['batch_size']}, after each of which "
                f"{replay['replay_batches']} batches of {replay.get('replay_batch_size', 50)} come "
                f"from memory (up to {replay['memory']:,} windows). "
            )
    return text + (
        "Accuracy: mean ± deviation over runs. Forgetting: best minus last recall, mean of "
        "activities. Times: processor time of a prediction in batches of 100, one thread."
    )


def _draw(figures: Any, cells: list[dict[str, Any]], activities: Any, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lifelong = [cell for cell in cells if cell["table"] == "lifelong"]
    shown = [
        cell for cell in lifelong if cell["model"] in ("fgn", "gat", "gcn", "appnp", "mlp", "cnn")
    ]
    if shown:
        figures.stream_accuracy(shown, folder / "action_stream.png")
        few = [cell for cell in shown if cell["model"] in ("fgn", "gat", "appnp", "cnn")]
        figures.per_class(few or shown, activities, folder / "action_classes.png")
    for cell in lifelong:
        if cell["model"] == "fgn":
            figures.confusion_matrix(cell["confusion"], activities, folder / "action_confusion.png")


def _table(title: str, rows: list[list[str]]) -> Table:
    table = Table(title=title)
    for number, name in enumerate(rows[0]):
        table.add_column(name, justify="right" if number else "left")
    for row in rows[1:]:
        table.add_row(*row)
    return table
