"""The commands that learn: run, compare, tune; and the list of data sets."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from evergraph.cli.console import (
    AsJson,
    DataRoot,
    Out,
    complaints,
    progress,
    publish,
    table_of,
    use_threads,
)
from evergraph.evaluate.evidence import provenance

if TYPE_CHECKING:
    from rich.progress import Progress

    from evergraph.evaluate.config import Config
    from evergraph.graph.dataset import Dataset

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
ModelName = Annotated[
    str, typer.Option(help="The network: fgn, or a baseline: mlp, gcn, sage, gat, appnp.")
]
Seeds = Annotated[int, typer.Option(min=1, help="How many seeds to run.")]
Capacity = Annotated[int, typer.Option(help="Items that the memory may hold.")]
Threads = Annotated[
    int,
    typer.Option(help="Threads of torch; small sparse batches are quickest with one."),
]
BatchSize = Annotated[int, typer.Option(help="Items that arrive together.")]


def run(
    dataset: DatasetName = "cora",
    scenario: ScenarioName = "class",
    model: ModelName = "fgn",
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
    classes_per_task: Annotated[
        int | None,
        typer.Option(help="Of class-incremental streams; 1, or 2 in the field's protocols."),
    ] = None,
    protocol: Annotated[
        str,
        typer.Option(
            help="`paper`; or `cglb`: two classes a task, 60/20/20 % of every class, --epochs "
            "passes over each task; or `online`: the same in one pass."
        ),
    ] = "paper",
    epochs: Annotated[
        int, typer.Option(help="Passes of regular learning, and over each task of `cglb`.")
    ] = 20,
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
    resume: Annotated[bool, typer.Option(help="Continue from --checkpoint.")] = False,
    threads: Threads = 1,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Learn a growing graph from a stream in one pass; report accuracy and forgetting.

    By default class-incremental Cora with a feature graph network and the paper's replay. Prints
    a table; --out gets result.json, learning_curve.png and accuracy_matrix.png. A run with
    --checkpoint that was killed resumes with --resume and ends with the same numbers.
    """
    from evergraph.evaluate.config import Config
    from evergraph.evaluate.protocols import recut

    evidence = provenance()  # of the code as it starts, whatever changes meanwhile
    use_threads(threads)
    hint = "" if checkpoint is None else f"Continue with --checkpoint {checkpoint} --resume."
    with complaints(hint):
        given = {"lr": lr, "steps": steps, "hops": hops}
        config = Config(
            dataset=dataset,
            scenario=scenario,  # type: ignore[arg-type]
            model=model,
            method=method,
            memory=memory,
            memory_rule=memory_rule,
            batch_size=batch_size,
            visibility=visibility,  # type: ignore[arg-type]
            classes_per_task=classes_per_task or (1 if protocol == "paper" else 2),
            class_order=_class_order(class_order),
            epochs=epochs,
            protocol=protocol,  # type: ignore[arg-type]
            settings={key: value for key, value in given.items() if value is not None},
        )
        if resume and checkpoint is None:
            raise ValueError("--resume needs --checkpoint, the file to continue from")
        with progress(as_json) as shown:
            data, config = load_or_generate(config, data_root, shown, as_json)
            if protocol != "paper":
                data, order = recut(data, config.classes_per_task, config.class_order)
                config = replace(config, class_order=order)
            result = follow_run(config, seeds, data, checkpoint, resume, every, shown)
    result = {**result, **evidence, "generated": data.generated}
    if out is not None:
        write_run(result, out)
    if as_json:
        typer.echo(json.dumps(result, indent=1))
    else:
        Console().print(run_table([result]))
        if out is not None:
            Console().print(f"Numbers and pictures are in {out}/", style="dim")


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
    """Run the given models with the given methods on the same stream, and print one table.

    By default FGN with seven methods; models and methods are those of `evergraph run`.
    """
    from evergraph.evaluate.config import Config

    evidence = provenance()
    use_threads(threads)
    results = []
    with complaints(), progress(as_json) as shown:
        for model in models.split(","):
            for method in methods.split(","):
                config = Config(
                    dataset=dataset,
                    scenario=scenario,  # type: ignore[arg-type]
                    model=model.strip(),
                    method=method.strip(),
                    memory=memory,
                    batch_size=batch_size,
                )
                data, config = load_or_generate(config, data_root, shown, as_json)
                results.append(follow_run(config, seeds, data, None, False, 0, shown))
    publish({**evidence, "results": results}, as_json, out, lambda: run_table(results))


def _class_order(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise ValueError(
            f"--class-order must be labels separated by commas, as numbers such as 2,0,1 (names "
            f"are numbered in sorted order), got {text!r}"
        ) from error


def load_or_generate(
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


def follow_run(
    config: Config,
    seeds: int,
    data: Dataset,
    checkpoint: Path | None,
    resume: bool,
    every: float,
    shown: Progress,
) -> dict[str, Any]:
    """Run all seeds with the current accuracy in the progress display."""
    from evergraph.evaluate.config import run_config

    if resume and checkpoint is not None:
        there = checkpoint.exists()
        words = f"resuming {checkpoint}" if there else f"no {checkpoint} yet: from the start"
        shown.console.print(words, style="dim")
    total = len(data.train) * config.passes
    task = shown.add_task("", total=total * seeds)

    def report(number: int, seen: int, accuracy: float) -> None:
        words = f"{config.dataset}, {config.method}, seed {number + 1} of {seeds}"
        if accuracy == accuracy:
            words += f", accuracy {accuracy:.3f}"
        shown.update(task, completed=number * total + seen, description=words)

    try:
        files = {"checkpoint": checkpoint, "resume": resume, "every": every}
        return run_config(config, tuple(range(seeds)), data, report, **files)
    finally:
        shown.remove_task(task)


def write_run(result: dict[str, Any], out: Path) -> None:
    """Write the numbers and the pictures of a run."""
    from evergraph.evaluate.figures import accuracy_matrix, learning_curve

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
    if config["protocol"] != "paper":
        title = f"{config['dataset']}, {config['scenario']}-incremental, {config['protocol']}"

    field = config["protocol"] != "paper"
    words = ("AP", "AF") if field else ("accuracy", "forgetting")
    text = []
    for result in results:
        config = result["config"]
        spread = f" ± {result['accuracy_sd']:.3f}" if len(result["seeds"]) > 1 else ""
        score = f"{result['average_accuracy_mean' if field else 'accuracy_mean']:.3f}"
        text.append([
            f"{config['model']}, {config['method']}",
            f"[bold]{score}[/bold]{'' if field else spread}",
            f"{result['average_forgetting_mean' if field else 'forgetting_mean']:.3f}",
            f"{result['seconds']:.1f}",
            f"{result['items_per_second']:,.0f}",
            f"{result['memory_bytes'] / 1024:,.0f} kB",
        ])  # fmt: skip
    meaning = "forgetting: best minus last, mean of tasks"
    if field:
        meaning = "AP: mean accuracy over classes at the end; AF: last minus first, mean of tasks"
    count = len(results[0]["seeds"])
    caption = f"{count} seed{'s' if count > 1 else ''}; {meaning}"
    columns = ("model, method", *words, "seconds", "items/s", "memory")
    return table_of(title, columns, text, caption=caption)
