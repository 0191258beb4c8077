"""What the commands of the model folder print and write."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Group
from rich.table import Table

from evergraph.cli.console import table_of

if TYPE_CHECKING:
    from evergraph.datasets.report import Problem
    from evergraph.model import Model, Prediction

COLUMNS = ("id", "class", "probability", "novelty")


def complain(problem: Problem) -> None:
    """Print an event that was refused."""
    typer.echo(f"Refused: {problem}", err=True)


def state(model: Model) -> dict[str, Any]:
    """What all commands that change a model tell about it."""
    return {
        "nodes": len(model.graph),
        "edges": model.graph.num_edges,
        "labels": sum(model.graph.classes.values()),
        "classes": model.graph.classes,
        "position": model.store.position,
        "digest": model.digest(),
    }


def overview(found: dict[str, Any]) -> Group:
    """Counts, classes and schema as tables."""
    schema = [tuple(line.values()) for line in found["schema"]]
    columns = ("column", "kind", "places", "scaling")
    classes = [(name, f"{count:,}") for name, count in found["classes"].items()]
    return Group(
        table_of("Columns", columns, schema, left=2),
        table_of("Classes", ("class", "labels"), classes),
        counts(found["model"], found),
    )


def counts(title: str, found: dict[str, Any]) -> Table:
    """Counts and accuracies, each with what it was measured on."""
    names = ("nodes", "edges", "waiting_edges", "labels", "position")
    rows = [(name.replace("_", " "), f"{found[name]:,}") for name in names if name in found]
    network = found.get("network") or {}
    rows += [(f"network: {name}", f"{count:,}") for name, count in network.items()]
    if found.get("prequential_labels"):
        tested = f"{found['prequential_accuracy']:.3f} of {found['prequential_labels']:,}"
        rows.append(("accuracy on late labels", tested))
    for split, part in found.get("held_back", {}).items():
        rate = "none" if part["accuracy"] is None else f"{part['accuracy']:.3f}"
        tested = f"{rate} of {part['tested']:,} tested, {part['nodes']:,} nodes"
        rows.append((f"accuracy on {split}", tested))
    return table_of(title, ("", "count"), rows, caption=f"digest {found['digest'][:16]}")


def record(one: Prediction) -> dict[str, Any]:
    """A prediction by the names of `COLUMNS`."""
    values = {"probability": one.probability, "novelty": one.novelty}
    return {"id": one.id, "class": one.label, **values}


def as_text(found: Sequence[Prediction], kind: str) -> str:
    """Predictions as CSV or JSONL."""
    if kind == "jsonl":
        return "".join(json.dumps(record(one), ensure_ascii=False) + "\n" for one in found)
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(COLUMNS)
    rows.writerows(record(one).values() for one in found)
    return text.getvalue()


def write(found: Sequence[Prediction], out: Path, kind: str) -> None:
    """Write predictions as a whole; ids of both types become texts in Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    fresh = out.with_name(f".{out.name}.part")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        if kind == "parquet":
            columns = [[record(one)[name] for one in found] for name in COLUMNS]
            if not all(isinstance(name, int) for name in columns[0]):
                columns[0] = [str(name) for name in columns[0]]
            parquet.write_table(pa.table(dict(zip(COLUMNS, columns, strict=True))), fresh)
        else:
            fresh.write_text(as_text(found, kind))
        fresh.replace(out)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise OSError(f"{out} cannot be written: {error}; make room for it") from error
