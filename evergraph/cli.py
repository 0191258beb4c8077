"""The command line: parses, calls, prints."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from evergraph.report.evidence import provenance

if TYPE_CHECKING:
    from evergraph.applications.citation import Config
    from evergraph.bench.batches import Case
    from evergraph.dataset import Dataset

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Lifelong learning on graphs that never stop growing.",
)
bench = typer.Typer(
    no_args_is_help=True, help="Measure this machine: ratios from one run, side by side."
)
app.add_typer(bench, name="bench")

AsJson = Annotated[
    bool, typer.Option("--json", help="Print JSON and nothing else on standard output.")
]
Out = Annotated[Path | None, typer.Option(help="Write the JSON to this file too.")]
DataRoot = Annotated[
    Path | None,
    typer.Option(
        envvar="EVERGRAPH_DATA", help="Folder with data sets; looked at before anything is fetched."
    ),
]


DatasetName = Annotated[
    str, typer.Option(help="A name that `evergraph datasets` lists, or a folder of your own.")
]
ScenarioName = Annotated[
    str,
    typer.Option(
        help="`class`: one class after the other; `data`: random order; `time`: by arrival; "
        "`regular`: shuffled, many passes."
    ),
]
Seeds = Annotated[int, typer.Option(min=1, help="How many seeds to run.")]
Capacity = Annotated[int, typer.Option(help="Items that the memory may hold.")]
Threads = Annotated[
    int,
    typer.Option(help="Threads of torch; small sparse batches are quickest with one."),
]
BatchSize = Annotated[int, typer.Option(help="Items that arrive together.")]


@app.command()
def run(
    dataset: DatasetName = "cora",
    scenario: ScenarioName = "class",
    model: Annotated[str, typer.Option(help="The network: fgn.")] = "fgn",
    method: Annotated[
        str,
        typer.Option(
            help="finetune, replay, ewc, mas, lwf, gem, agem, der, joint (upper bound) or "
            "analytic (closed form, no replay)."
        ),
    ] = "replay",
    memory: Capacity = 500,
    memory_rule: Annotated[
        str, typer.Option(help="reservoir, class-balanced, age-quota or uniform.")
    ] = "reservoir",
    batch_size: BatchSize = 10,
    seeds: Seeds = 3,
    visibility: Annotated[
        str, typer.Option(help="`all` neighbors' features are known, or only of `arrived` ones.")
    ] = "all",
    classes_per_task: Annotated[int, typer.Option(help="Of class-incremental streams.")] = 1,
    class_order: Annotated[
        str | None, typer.Option(help="Classes in the order in which they come, as 3,0,1,2.")
    ] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate; default: the preset.")] = None,
    steps: Annotated[
        int | None, typer.Option(help="Gradient steps on each new batch; default: the preset.")
    ] = None,
    hops: Annotated[
        int | None, typer.Option(help="Hops of neighbors that items carry; default: the preset.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for result.json and the pictures.")
    ] = Path("out"),
    checkpoint: Annotated[
        Path | None, typer.Option(help="Save the whole state here while running.")
    ] = None,
    every: Annotated[float, typer.Option(help="Seconds between checkpoints.")] = 10.0,
    resume: Annotated[bool, typer.Option(help="Go on from --checkpoint.")] = False,
    threads: Threads = 1,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Learn a growing graph from a stream, one pass, and tell how well and how much is forgotten.

    By default class-incremental Cora with a feature graph network and the paper's replay. Prints
    a table; --out gets result.json, learning_curve.png and accuracy_matrix.png. A run with
    --checkpoint that was killed goes on with --resume and ends with the same numbers.
    """
    from evergraph.applications import citation

    use_threads(threads)
    with complaints():
        given = {"lr": lr, "steps": steps, "hops": hops}
        config = citation.Config(
            dataset=dataset,
            scenario=scenario,  # type: ignore[arg-type]
            model=model,
            method=method,
            memory=memory,
            memory_rule=memory_rule,
            batch_size=batch_size,
            visibility=visibility,  # type: ignore[arg-type]
            classes_per_task=classes_per_task,
            class_order=_class_order(class_order),
            settings={key: value for key, value in given.items() if value is not None},
        )
        if resume and checkpoint is None:
            raise ValueError("--resume needs --checkpoint, the file to go on from")
        with progress(as_json) as shown:
            data, config = _load_or_generate(config, data_root, shown, as_json)
            result = _follow_run(config, seeds, data, checkpoint, resume, every, shown)
    result = {**result, **provenance(), "origin": data.origin, "generated": data.generated}
    if out is not None:
        _write_run(result, out)
    if as_json:
        typer.echo(json.dumps(result, indent=1))
    else:
        Console().print(run_table([result]))
        if out is not None:
            Console().print(f"Numbers and pictures are in {out}/", style="dim")


@app.command()
def compare(
    methods: Annotated[str, typer.Option(help="Methods, separated by commas.")] = (
        "finetune,ewc,lwf,agem,der,replay,analytic"
    ),
    models: Annotated[str, typer.Option(help="Models, separated by commas.")] = "fgn",
    dataset: DatasetName = "cora",
    scenario: ScenarioName = "class",
    memory: Capacity = 500,
    batch_size: BatchSize = 10,
    seeds: Seeds = 1,
    threads: Threads = 1,
    data_root: DataRoot = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Run every model with every method on the same stream, and print one table."""
    from evergraph.applications import citation

    use_threads(threads)
    results = []
    with complaints(), progress(as_json) as shown:
        for model in models.split(","):
            for method in methods.split(","):
                config = citation.Config(
                    dataset=dataset,
                    scenario=scenario,  # type: ignore[arg-type]
                    model=model.strip(),
                    method=method.strip(),
                    memory=memory,
                    batch_size=batch_size,
                )
                data, config = _load_or_generate(config, data_root, shown, as_json)
                results.append(_follow_run(config, seeds, data, None, False, 0, shown))
    publish({**provenance(), "results": results}, as_json, out, lambda: run_table(results))


@app.command()
def tune(
    dataset: DatasetName = "cora",
    model: Annotated[str, typer.Option(help="The network: fgn.")] = "fgn",
    method: Annotated[str, typer.Option(help="As in `evergraph run`.")] = "replay",
    memory: Capacity = 500,
    seeds: Seeds = 2,
    threads: Threads = 1,
    data_root: DataRoot = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Try all candidate settings on validation nodes, taken from the training part.

    The same list of candidates serves every network, so that none is better tuned than others.
    The test nodes are never looked at.
    """
    from evergraph.applications import citation, search

    use_threads(threads)
    with complaints(), progress(as_json) as shown:
        config = citation.Config(dataset=dataset, model=model, method=method, memory=memory)
        data, config = _load_or_generate(config, data_root, shown, as_json)
        task = shown.add_task(f"{dataset}, {model}, {method}", total=None)
        rows = search.search(
            config,
            data,
            seeds=tuple(range(seeds)),
            report=lambda done, total: shown.update(task, completed=done, total=total),
        )

    def table() -> Table:
        shown = Table(title=f"{dataset}, {model}, {method}: accuracy on validation nodes")
        for name in ("settings", "data", "class", "mean"):
            shown.add_column(name, justify="left" if name == "settings" else "right")
        for row in rows:
            accuracy = row["validation_accuracy"]
            numbers = (accuracy["data"], accuracy["class"], row["validation_mean"])
            settings = ", ".join(f"{key} {value}" for key, value in row["settings"].items())
            shown.add_row(settings, *(f"{number:.4f}" for number in numbers))
        return shown

    about = {"dataset": dataset, "model": model, "method": method, "memory": memory}
    publish({**provenance(), **about, "seeds": seeds, "trials": rows}, as_json, out, table)


@app.command()
def datasets(data_root: DataRoot = None, as_json: AsJson = False) -> None:
    """List the data sets: what is here, what can be fetched, what can be generated."""
    from dataclasses import asdict

    from evergraph.datasets import available

    found = available(data_root)
    if as_json:
        rows = [{**asdict(entry), "where": str(entry.where or "")} for entry in found]
        typer.echo(json.dumps(rows, indent=1))
        return
    table = Table(title="Data sets")
    for name in ("name", "state", "nodes", "edges", "features", "classes"):
        table.add_column(name, justify="left" if name in ("name", "state") else "right")
    for entry in found:
        counts = (entry.nodes, entry.edges, entry.features, entry.classes)
        table.add_row(entry.name, entry.state, *(f"{n:,}" if n else "" for n in counts))
    Console().print(table)


def use_threads(count: int) -> None:
    """Let torch use so many threads."""
    import torch

    torch.set_num_threads(count)


def _class_order(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise ValueError(
            f"--class-order must be labels separated by commas, got {text!r}"
        ) from error


def _load_or_generate(
    config: Config, data_root: Path | None, shown: Progress, quiet: bool
) -> tuple[Dataset, Config]:
    """The data set; if the default one cannot be had, a generated one, and a word about it."""
    from evergraph.datasets import DatasetNotFound, load

    task = shown.add_task(f"looking for {config.dataset}", total=None)
    try:
        return load(
            config.dataset,
            data_root,
            progress=lambda what, _: shown.update(task, description=what),
        ), config
    except DatasetNotFound as error:
        if config.dataset != "cora":
            raise
        if not quiet:
            note = "Cora cannot be had here, so this run is on a generated graph."
            Console(stderr=True).print(f"{error}\n[yellow]{note}[/yellow]")
        return load("generated"), replace(config, dataset="generated")
    finally:
        shown.remove_task(task)


def _follow_run(
    config: Config,
    seeds: int,
    data: Dataset,
    checkpoint: Path | None,
    resume: bool,
    every: float,
    shown: Progress,
) -> dict[str, Any]:
    from evergraph.applications import citation

    passes = config.epochs if config.scenario == "regular" else 1
    total = len(data.train) * passes
    task = shown.add_task("", total=total * seeds)

    def report(number: int, seen: int, accuracy: float) -> None:
        words = f"{config.dataset}, {config.method}, seed {number + 1} of {seeds}"
        if accuracy == accuracy:
            words += f", accuracy {accuracy:.3f}"
        shown.update(task, completed=number * total + seen, description=words)

    try:
        return citation.run(config, tuple(range(seeds)), data, checkpoint, resume, every, report)
    finally:
        shown.remove_task(task)


def _write_run(result: dict[str, Any], out: Path) -> None:
    from evergraph.report.figures import accuracy_matrix, learning_curve

    out.mkdir(parents=True, exist_ok=True)
    (out / "result.json").write_text(json.dumps(result, indent=1) + "\n")
    learning_curve(result, out / "learning_curve.png")
    accuracy_matrix(result, out / "accuracy_matrix.png")


def run_table(results: list[dict[str, Any]]) -> Table:
    """One line per run: how well, how much was forgotten, at what cost."""
    config = results[0]["config"]
    title = f"{config['dataset']}, {config['scenario']}-incremental, one pass"
    if config["scenario"] == "regular":
        title = f"{config['dataset']}, regular, {config['epochs']} passes"
    table = Table(title=title)
    table.add_column("model, method")
    for name in ("accuracy", "forgetting", "seconds", "items/s", "memory"):
        table.add_column(name, justify="right")
    for result in results:
        config = result["config"]
        table.add_row(
            f"{config['model']}, {config['method']}",
            f"[bold]{result['accuracy_mean']:.3f}[/bold] ± {result['accuracy_sd']:.3f}",
            f"{result['forgetting_mean']:.3f}",
            f"{result['seconds']:.1f}",
            f"{result['items_per_second']:,.0f}",
            f"{result['memory_bytes'] / 1024:,.0f} kB",
        )
    table.caption = f"{len(results[0]['seeds'])} seeds; forgetting: best minus last, mean of tasks"
    return table


@contextmanager
def complaints() -> Iterator[None]:
    """Turn the errors that a user can mend into one line and exit code 2."""
    from evergraph.datasets import DatasetNotFound

    try:
        yield
    except (ValueError, DatasetNotFound) as error:
        Console(stderr=True).print(f"[red]Error:[/red] {error}", highlight=False)
        raise typer.Exit(2) from error


@contextmanager
def progress(quiet: bool) -> Iterator[Progress]:
    """A progress display on standard error, so that standard output stays clean."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), disable=quiet, transient=True) as shown:
        yield shown


def publish(
    result: dict[str, object], as_json: bool, out: Path | None, show: Callable[[], Table]
) -> None:
    """Write and print a result: as JSON, or as a table."""
    text = json.dumps(result, indent=1)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text + "\n")
    if as_json:
        typer.echo(text)
    else:
        Console().print(show())


@bench.command("speed")
def bench_speed(as_json: AsJson = False, out: Out = None, data_root: DataRoot = None) -> None:
    """Time a training step of FGN: the paper's F × F matrices against the exact fast forms.

    Both sides start from the same parameters and see the same batch; the table also shows how
    far their logits and gradients are apart. Without Cora and Citeseer at hand, batches with the
    same numbers of features, words and neighbors are generated.
    """
    from evergraph.bench.batches import dense_embeddings
    from evergraph.bench.speed import speed

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

    publish({**provenance(), "cases": rows}, as_json, out, table)


def _citation_cases(data_root: Path | None) -> list[Case]:
    from evergraph.bench.batches import bags_of_words, from_dataset
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
    from evergraph.bench import growth
    from evergraph.bench.stream import follow
    from evergraph.datasets.generate import PRESETS, generate

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
        **provenance(),
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
