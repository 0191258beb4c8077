"""The table of `run` and `compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from evergraph.cli.console import table_of


def run_table(results: list[dict[str, Any]]) -> Table:
    """One line per run: how well, how much was forgotten, at what cost."""
    config, seeds = results[0]["config"], results[0]["seeds"]
    field = config["protocol"] != "paper"
    way = f"{config['scenario']}-incremental, {config['protocol'] if field else 'one pass'}"
    if config["scenario"] == "regular" and not field:
        way = f"regular, {config['epochs']} passes"
    words: tuple[str, ...] = "accuracy", "forgetting"
    keys = "accuracy_mean", "forgetting_mean"
    meaning = "forgetting: best minus last, mean of tasks"
    if field:
        words, keys = ("AP", "AF"), ("average_accuracy_mean", "average_forgetting_mean")
        meaning = "AP: mean accuracy over classes at the end; AF: last minus first, mean of tasks"
    early = config["scenario"] in ("data", "time") and not field
    if early:
        words += ("prequential",)
        meaning += "; prequential: share of labels predicted right before they were learned"
    text: list[list[str | Text]] = []
    for result in results:
        spread = f" ± {result['accuracy_sd']:.3f}" if len(seeds) > 1 and not field else ""
        text.append([
            name_of(result),
            Text.assemble((f"{result[keys[0]]:.3f}", "bold"), spread),
            f"{result[keys[1]]:.3f}",
            *([_share(result["prequential_mean"])] if early else []),
            f"{result['seconds']:.1f}",
            *([] if early else [f"{result['items_per_second']:,.0f}"]),
            f"{result['memory_bytes'] / 1024:,.0f} kB",
        ])  # fmt: skip
    caption = f"{len(seeds)} seed{'s' if len(seeds) > 1 else ''}; {meaning}"
    columns = ("model, method", *words, "seconds", *([] if early else ["items/s"]), "memory")
    return table_of(f"{config['dataset']}, {way}", columns, text, caption=caption)


def name_of(result: dict[str, Any]) -> str:
    """What a run is called in a table or a picture that has several."""
    config = result["config"]
    regular = config["scenario"] == "regular" and config["protocol"] == "paper"
    return f"{config['model']}, {'regular' if regular else config['method']}"


def run_figure(results: list[dict[str, Any]], path: Path) -> None:
    """The mean curve of each run over the stream; regular learning as a level, the bound."""
    from evergraph.evaluate.figures import curves

    lines, levels = {}, {}
    for result in results:
        name = name_of(result)
        if result["config"]["scenario"] == "regular":
            levels[name] = result["accuracy_mean"]
            continue
        seeds = result["curve"]
        lines[name] = [
            (points[0][0], sum(accuracy for _, accuracy in points) / len(seeds))
            for points in zip(*seeds, strict=True)
        ]
    config = results[0]["config"]
    title = f"{config['dataset']}, {config['scenario']}-incremental, memory of {config['memory']}"
    curves(lines, "items seen", title, path, levels=levels)


def _share(value: float | None) -> str:
    """Three digits; a dash where nothing was predicted, as by a method that solves at the end."""
    return "-" if value is None else f"{value:.3f}"
