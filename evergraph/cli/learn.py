"""The commands that learn: run, compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from evergraph.cli.console import (
    AsJson,
    DataRoot,
    Out,
    Threads,
    complaints,
    progress,
    publish,
    remark,
    signals,
    use_threads,
    written,
)
from evergraph.cli.curves import Point, Target, curves, nowhere
from evergraph.cli.engines import (
    Address,
    Device,
    EngineName,
    RankCount,
    check_place,
    check_ranks,
    compared,
    launched,
    learned_on_ray,
    runner,
)
from evergraph.cli.run_output import run_figure, run_table
from evergraph.cli.settings import Set, SettingsFile, given_settings
from evergraph.evaluate.evidence import provenance

if TYPE_CHECKING:
    from rich.progress import Progress

    from evergraph.evaluate.config import Config
    from evergraph.graph.dataset import Dataset

DatasetName = Annotated[
    str, Option(help="A name that `evergraph datasets` lists, or a folder of your own.")
]
ScenarioName = Annotated[
    str,
    Option(
        help="`class`: one class after the other; `data`: random order; `time`: by arrival; "
        "`regular`: shuffled, many passes."
    ),
]
ModelName = Annotated[
    str, Option(help="The network: fgn, or a baseline: mlp, gcn, sage, gat, appnp.")
]
MethodName = Annotated[
    str,
    Option(
        help="finetune, replay, ewc, mas, mas-task-free, twp, lwf, gem, agem, der, influence, "
        "gss, mir, ssm, joint (upper bound), "
        "analytic or kernel (closed forms, no replay)."
    ),
]
Seeds = Annotated[int, Option(min=1, help="How many seeds to run.")]
Capacity = Annotated[int, Option(help="Items that the memory may hold.")]
BatchSize = Annotated[int, Option(help="Items that arrive together.")]


def run(
    dataset: DatasetName = "cora",
    scenario: ScenarioName = "class",
    model: ModelName = "fgn",
    method: MethodName = "replay",
    memory: Capacity = 500,
    memory_rule: Annotated[
        str, Option(help="reservoir, class-balanced, age-quota or uniform.")
    ] = "reservoir",
    outliers: Annotated[
        str, Option(help="`clip` absurd feature values, `refuse` them, or let them `pass`.")
    ] = "clip",
    batch_size: BatchSize = 10,
    seeds: Seeds = 3,
    visibility: Annotated[
        str, Option(help="`all` neighbors' features are known, or only of `arrived` ones.")
    ] = "all",
    classes_per_task: Annotated[
        int | None, Option(help="Of class-incremental streams; 1, or 2 in the field's protocols.")
    ] = None,
    protocol: Annotated[
        str,
        Option(
            help="`paper`; or `cglb`: two classes a task, 60/20/20 % of every class, --epochs "
            "passes over each task; or `online`: the same in one pass."
        ),
    ] = "paper",
    epochs: Annotated[int, Option(help="Passes if `regular`, and over each task of `cglb`.")] = 20,
    class_order: Annotated[
        str | None, Option(help="The classes in order, by name or as 3,0,1,2.")
    ] = None,
    tasks: Annotated[
        int, Option(min=1, help="Parts of a stream by `time` or `data`, tested after each.")
    ] = 1,
    lr: Annotated[float | None, Option(help="Learning rate; default: the preset.")] = None,
    steps: Annotated[int | None, Option(help="Gradient steps a batch; default: preset.")] = None,
    hops: Annotated[int | None, Option(help="Hops that items carry; default: the preset.")] = None,
    pairs: Set = None,
    settings: SettingsFile = None,
    out: Annotated[Path, written("Folder for numbers and pictures.", folder=True)] = Path("out"),
    checkpoint: Annotated[Path | None, written("Save the whole state here meanwhile.")] = None,
    every: Annotated[float, Option(help="Seconds between checkpoints.")] = 10.0,
    resume: Annotated[bool, Option(help="Continue from --checkpoint.")] = False,
    threads: Threads = 1,
    device: Device = "cpu",
    engine: EngineName = "local",
    ranks: RankCount = None,
    address: Address = None,
    curves_to: Target = None,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Learn a graph from a stream in one pass: accuracy, forgetting.

    By default class-incremental Cora with a feature graph network and the paper's replay. Prints
    a table; --out gets result.json, learning_curve.png and accuracy_matrix.png. A run with
    --checkpoint that was killed resumes with --resume and ends with the same numbers. With
    --engine ray --ranks N, or under torchrun, N processes learn one network; see docs/scale.md.
    """
    from evergraph.evaluate.config import Config
    from evergraph.evaluate.protocols import recut

    evidence = provenance()  # of the code as it starts, whatever changes meanwhile
    use_threads(threads)
    hint = "" if checkpoint is None else f"Continue with --checkpoint {checkpoint} --resume."
    with complaints(hint):
        named = {"lr": lr, "steps": steps, "hops": hops}
        given = given_settings(pairs, settings, scenario)
        given |= {key: value for key, value in named.items() if value is not None}
        config = Config(
            dataset=dataset,
            scenario=scenario,  # type: ignore[arg-type]
            model=model,
            method=method,
            memory=memory,
            memory_rule=memory_rule,
            outliers=outliers,  # type: ignore[arg-type]
            batch_size=batch_size,
            visibility=visibility,  # type: ignore[arg-type]
            classes_per_task=classes_per_task or (1 if protocol == "paper" else 2),
            tasks=tasks,
            epochs=epochs,
            protocol=protocol,  # type: ignore[arg-type]
            settings=given,
        )
        if resume and checkpoint is None:
            raise ValueError("--resume needs --checkpoint, the file to continue from")
        check_ranks(engine, ranks)
        files: dict[str, Any] = {"checkpoint": checkpoint, "resume": resume, "every": every}
        files["device"] = check_place(device, engine)
        with (
            launched() as here,
            progress(as_json or not here.is_first) as shown,
            signals() as stop,
            curves(curves_to if here.is_first else None) as point,
        ):
            data, config = load_or_generate(config, data_root, shown, as_json)
            order = _class_order(class_order, data.graph.class_names)
            config = replace(config, class_order=order)
            if protocol != "paper":
                data, order = recut(data, config.classes_per_task, config.class_order)
                config = replace(config, class_order=order)
            if engine == "ray":
                result = learned_on_ray(config, seeds, data, ranks or 2, address, **files)
            else:
                files |= {"stop": stop, "ranks": here}
                result = follow_run(config, seeds, data, shown, point, **files)
    if not here.is_first:
        return
    result = {**result, **evidence, "generated": data.generated}
    publish(result, as_json, out / "result.json", lambda: run_table([result]))
    if result["clipped"]:
        text = f"{result['clipped']:,} feature values were clipped as outliers; see --outliers."
        remark(text, err=True)
    from evergraph.evaluate.figures import accuracy_matrix, learning_curve

    with complaints():
        learning_curve(result, out / "learning_curve.png")
        accuracy_matrix(result, out / "accuracy_matrix.png")
    if not as_json:
        remark(f"Numbers and pictures are in {out}/")


def compare(
    methods: Annotated[str, Option(help="Methods, separated by commas.")] = (
        "finetune,ewc,lwf,agem,der,replay,analytic"
    ),
    models: Annotated[str, Option(help="Models, separated by commas.")] = "fgn",
    runs: Annotated[
        str | None,
        Option(
            help="In place of both, pairs such as gcn/replay,fgn/regular; `regular` is the bound: "
            "all nodes shuffled, --epochs passes."
        ),
    ] = None,
    epochs: Annotated[int, Option(min=1, help="Passes of regular learning.")] = 20,
    dataset: DatasetName = "cora",
    scenario: ScenarioName = "class",
    memory: Capacity = 500,
    batch_size: BatchSize = 10,
    seeds: Seeds = 1,
    pairs: Set = None,
    settings: SettingsFile = None,
    threads: Threads = 1,
    device: Device = "cpu",
    engine: EngineName = "local",
    address: Address = None,
    data_root: DataRoot = None,
    out: Out = None,
    figure: Annotated[Path | None, written("Draw the curves of all runs to this file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Run models and methods on the same stream, and print one table.

    By default FGN with seven methods; models and methods are those of `evergraph run`. Settings
    that are given count for all of them. What --out has already with the same settings and seeds
    is not run again.
    """
    from evergraph.evaluate.config import Config

    evidence = provenance()
    use_threads(threads)
    with complaints(), progress(as_json) as shown:
        check_place(device, engine)
        configs = []
        for model, method in _pairs(runs, models, methods):
            order = "regular" if method == "regular" else scenario
            config = Config(
                dataset=dataset,
                scenario=order,  # type: ignore[arg-type]
                model=model,
                method="finetune" if method == "regular" else method,
                memory=memory,
                batch_size=batch_size,
                epochs=epochs,
                settings=given_settings(pairs, settings, order),
            )
            data, config = load_or_generate(config, data_root, shown, as_json)
            dataset = config.dataset  # another one, if the first cannot be had
            configs.append(config)
        run = runner(engine, address)
        here = lambda c: follow_run(c, seeds, data, shown, device=device)  # noqa: E731
        one = None if engine == "ray" else here
        results = compared(configs, seeds, data, run, one, shown, out, evidence)
    publish({**evidence, "results": results}, as_json, out, lambda: run_table(results))
    if figure is not None:
        with complaints():
            run_figure(results, figure)


def _pairs(runs: str | None, models: str, methods: str) -> list[tuple[str, str]]:
    """The model and the method of each run."""
    if runs is None:
        return [(m.strip(), how.strip()) for m in models.split(",") for how in methods.split(",")]
    pairs = [tuple(part.strip().split("/")) for part in runs.split(",")]
    for pair in pairs:
        if len(pair) != 2 or not all(pair):
            raise ValueError(f"--runs must be pairs such as fgn/replay, got {'/'.join(pair)!r}")
    return [(model, method) for model, method in pairs]


def _class_order(text: str | None, names: Sequence[str]) -> tuple[int, ...] | None:
    """The order of classes, given by name or, as numbers, by label."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if set(parts) <= set(names):
        return tuple(names.index(part) for part in parts)
    try:
        return tuple(int(part) for part in parts)
    except ValueError as error:
        known = f" or names among {', '.join(names)}" if names else ""
        raise ValueError(
            "--class-order must be labels separated by commas, as numbers such as 2,0,1"
            f"{known}, got {text!r}"
        ) from error


def load_or_generate(
    config: Config, data_root: Path | None, shown: Progress, quiet: bool
) -> tuple[Dataset, Config]:
    """The data set; if the default one cannot be had, a generated one, and a word about it."""
    from evergraph.datasets import DatasetNotFound, load

    task = shown.add_task(f"looking for {config.dataset}", total=None)
    try:
        step = lambda what, _: shown.update(task, description=what)  # noqa: E731
        return load(config.dataset, data_root, progress=step), config
    except DatasetNotFound as error:
        if config.dataset != "cora":
            raise
        if not quiet:
            remark(str(error), "", err=True)
            note = "Cora cannot be had here, so this run is on a generated graph."
            remark(note, "yellow", err=True)
        return load("generated"), replace(config, dataset="generated")
    finally:
        shown.remove_task(task)


def follow_run(
    config: Config,
    seeds: int,
    data: Dataset,
    shown: Progress,
    point: Point = nowhere,
    **files: Any,
) -> dict[str, Any]:
    """Run all seeds with the current accuracy in the progress display, and in curves.

    The `files` are checkpoint, resume, every and device of `run_config`.
    """
    from evergraph.evaluate.config import run_config

    if files.get("resume"):
        path = files["checkpoint"]
        words = f"resuming {path}" if path.exists() else f"no {path} yet: from the start"
        remark(words, err=True)
    total = len(data.train) * config.passes
    task = shown.add_task("", total=total * seeds)

    def report(number: int, seen: int, accuracy: float) -> None:
        words = f"{config.dataset}, {config.method}, seed {number + 1} of {seeds}"
        if accuracy == accuracy:
            words += f", accuracy {accuracy:.3f}"
            point(seen, {f"accuracy/seed_{number}": accuracy})
        shown.update(task, completed=number * total + seen, description=words)

    try:
        return run_config(config, tuple(range(seeds)), data, report, **files)
    finally:
        shown.remove_task(task)
