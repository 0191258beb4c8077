"""The commands of the model folder: train, learn, predict, forget, inspect."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.table import Table
from typer.core import TyperCommand

from evergraph.cli.console import (
    AsJson,
    DataRoot,
    complaints,
    progress,
    publish,
    remark,
    signals,
    table_of,
    written,
)
from evergraph.cli.event_files import EventFile

if TYPE_CHECKING:
    from rich.progress import Progress

    from evergraph.datasets.report import Problem, Report
    from evergraph.model import Model, Prediction

Folder = Annotated[Path, typer.Argument(metavar="MODEL", help="A folder made by `train`.")]
COLUMNS = ("id", "class", "probability", "novelty")
IdColumn = Annotated[str, typer.Option("--id", help="The column of ids in the table of nodes.")]


def train(
    data: Annotated[
        str,
        typer.Argument(
            help="A folder with tables `nodes` and `edges` (CSV, JSONL, Parquet or Arrow), or a "
            "name that `evergraph datasets` lists."
        ),
    ],
    out: Annotated[Path, written("The model folder to make.", folder=True)],
    schema: Annotated[
        Path | None, typer.Option(help="Kinds of columns, as --schema-out wrote and you edited.")
    ] = None,
    schema_out: Annotated[
        Path | None, written("Write the kinds of columns to this file, to be edited.")
    ] = None,
    id: IdColumn = "id",
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Make a model folder from tables, and print what the columns were taken for.

    Numbers are standardized, categories and words hashed, dates read, gaps filled; edges to nodes
    that are not there wait for them. All complaints about the tables come at once.
    """
    from evergraph.datasets.schema import Schema
    from evergraph.model import Model

    with complaints(), progress(as_json) as shown:
        given = None if schema is None else Schema(Schema.from_json(_text(schema)).columns)
        task = shown.add_task(f"reading {data}", total=None)
        nodes, edges = _tables(data, data_root, lambda what: shown.update(task, description=what))
        shown.update(task, description=f"learning {data}")
        with Model.train(out, nodes, edges, schema=given, id=id) as model:
            found = {"model": str(out), **model.inspect()}
            if schema_out is not None:
                schema_out.parent.mkdir(parents=True, exist_ok=True)
                schema_out.write_text(Schema(model.schema.columns).to_json())
    publish(found, as_json, None, lambda: _overview(found))


def learn(
    folder: Folder,
    events: Annotated[
        list[str],
        typer.Argument(help="Files of events, JSONL or CSV; `-` reads standard input."),
    ],
    resume: Annotated[
        bool, typer.Option(help="Continue each file where an earlier `learn` ended.")
    ] = False,
    chunk: Annotated[int, typer.Option(min=1, help="Events that are stored together.")] = 1000,
    format: Annotated[
        str | None, typer.Option(help="jsonl, csv or tsv; default: by the name, else jsonl.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Feed events to a model: nodes, edges, labels and deletions, in any order.

    What is stored is safe, and its place in the file with it: after a crash, --resume continues
    behind it, and nothing is learned twice. Refused events are printed, and the exit code is 1
    then; the others are learned.
    """
    from evergraph.datasets.report import Report

    report = Report(None if as_json else _complain)
    options = {"size": chunk, "format": format}
    hint = "All that was learned is saved: continue with --resume."
    with complaints(hint), signals() as stopped:
        files = [EventFile(name) for name in events]
        with _open(folder) as model, progress(as_json) as shown:
            places = [file.place(model.store) if resume else None for file in files]
            parts = [
                _learn_file(model, file, report, shown, stopped, start=start, **options)
                for file, start in zip(files, places, strict=True)
            ]
            _save(model)
            found = {
                "learned": sum(part["learned"] for part in parts),
                "refused": report.count,
                "files": parts,
                "problems": [asdict(problem) for problem in report.problems],
                **_state(model),
            }
        if stopped():
            raise KeyboardInterrupt
    columns = ("file", "learned", "refused", "bytes read")
    rows = [(p["file"], *(f"{p[k]:,}" for k in ("learned", "refused", "offset"))) for p in parts]
    caption = f"{found['position']:,} events so far; digest {found['digest'][:16]}"
    publish(found, as_json, None, lambda: table_of(str(folder), columns, rows, caption=caption))
    if found["refused"]:
        raise typer.Exit(1)


def predict(
    folder: Folder,
    nodes: Annotated[
        str | None,
        typer.Argument(
            help="A table of nodes: ids of the graph, or new nodes with features, which are not "
            "stored; `-` reads standard input. Default: all nodes of the graph."
        ),
    ] = None,
    edges: Annotated[str | None, typer.Option(help="A table of edges of new nodes.")] = None,
    out: Annotated[Path | None, written("Write to this file: CSV, JSONL or Parquet.")] = None,
    format: Annotated[
        str | None, typer.Option(help="csv, jsonl or parquet; default: by --out, else csv.")
    ] = None,
    id: IdColumn = "id",
    as_json: AsJson = False,
) -> None:
    """Tell the classes of nodes: id, class, probability, novelty.

    Novelty tells how badly a node fits any class that is known.
    """
    from evergraph.checks import check_one_of

    with complaints():
        kind = format or (out.suffix.removeprefix(".").lower() if out is not None else "csv")
        check_one_of("the format of predictions", kind, ("csv", "jsonl", "parquet"))
        if kind == "parquet" and out is None:
            raise ValueError("the format parquet needs a file: give --out")
        with _open(folder, readonly=True) as model:
            found = model.predict(nodes, edges, id=id)
        if out is not None:
            _write(found, out, kind)
        if as_json:
            typer.echo(json.dumps([_record(one) for one in found], indent=1))
        elif out is None:
            sys.stdout.write(_as_text(found, kind))
        else:
            remark(f"{len(found):,} predictions are in {out}", err=True)


def forget(
    folder: Folder,
    node: Annotated[list[str] | None, typer.Option(help="A node, with its edges.")] = None,
    edge: Annotated[
        list[str] | None, typer.Option(help="An edge, as two ids.", metavar="A B")
    ] = None,
    label: Annotated[list[str] | None, typer.Option(help="The label of a node.")] = None,
    as_json: AsJson = False,
) -> None:
    """Take nodes, edges or labels out of a model, with all their traces; all of them or none.

    Afterwards the model is what it would be without them, and the files hold no byte of them. An
    id that is written as an integer is one, as in tables. Options may be repeated.
    """
    from evergraph.datasets.fields import id_of

    with complaints():
        nodes, labels = ([id_of(one) for one in given or ()] for given in (node, label))
        edges = [(id_of(a), id_of(b)) for a, b in map(json.loads, edge or ())]
        if not (nodes or edges or labels):
            raise ValueError("nothing to forget: give --node ID, --edge A B or --label ID")
        with _open(folder) as model:
            model.forget(nodes, edges, labels)
            counts = {"nodes": len(nodes), "edges": len(edges), "labels": len(labels)}
            found = {"forgotten": counts, **_state(model)}
    publish(found, as_json, None, lambda: _counts(f"{folder}, without them", found))


class Pairs(TyperCommand):
    """A command whose option --edge takes two values and may be repeated."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Join the two values to one, since typer knows no lists of pairs."""
        joined, rest = [], list(args)
        while rest:
            joined.append(rest.pop(0))
            if joined[-1] == "--edge":
                if len(rest) < 2:
                    ctx.fail(f"Option '--edge' needs two ids, got {len(rest)}.")
                joined.append(json.dumps([rest.pop(0), rest.pop(0)]))
        return super().parse_args(ctx, joined)


def inspect(folder: Folder, as_json: AsJson = False) -> None:
    """Show what a model holds: counts, classes, schema, accuracy over time, digest."""
    with complaints(), _open(folder, readonly=True) as model:
        found = {"model": str(folder), **model.inspect()}
    publish(found, as_json, None, lambda: _overview(found))


# -- reading ----------------------------------------------------------------------------------


def _open(folder: Path, readonly: bool = False) -> Model:
    from evergraph.model import Model

    return Model.open(folder, readonly=readonly)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read ({error}); check its name and rights") from error


def _tables(data: str, root: Path | None, say: Callable[[str], None]) -> tuple[Any, Any]:
    """The nodes and the edges of a folder or of a data set."""
    from evergraph.datasets import load
    from evergraph.datasets.folder import table_file
    from evergraph.datasets.objects import dataset_tables

    if Path(data).is_dir():
        nodes, edges = table_file(Path(data), "nodes"), None
        with suppress(FileNotFoundError):  # a graph without edges
            edges = table_file(Path(data), "edges")
        return nodes, edges
    return dataset_tables(load(data, root, progress=lambda what, _: say(what)))


def _learn_file(
    model: Model,
    file: EventFile,
    report: Report,
    shown: Progress,
    stopped: Callable[[], bool],
    **options: Any,
) -> dict[str, Any]:
    """Learn a file chunk by chunk, and store its place with what was learned up to there."""
    from evergraph.datasets.events import read_events

    done: dict[str, Any] = {"file": file.name, "learned": 0, "refused": 0, "offset": 0}
    if (start := options["start"]) is not None:
        done["offset"] = start.offset
    before, task = report.count, shown.add_task(file.name, total=file.size)
    reading = () if stopped() else read_events(file.stream(stopped), report, **options)
    for events, place in reading:
        done["learned"] += model.learn(events, report, note=file.note(place), file=file.name)
        done.update(refused=report.count - before, offset=place.offset)
        words = f"{file.name}: {done['learned']:,} events learned, bytes read"
        shown.update(task, completed=place.offset, description=words)
        if stopped():
            break
    return done


def _save(model: Model) -> None:
    """Save a model that has stored its events already."""
    try:
        model.save()
    except (ValueError, OSError) as error:
        raise ValueError(f"{error}; all events are stored, nothing of them is lost") from error


# -- printing and writing -----------------------------------------------------------------------


def _complain(problem: Problem) -> None:
    typer.echo(f"Refused: {problem}", err=True)


def _state(model: Model) -> dict[str, Any]:
    """What all commands that change a model tell about it."""
    return {
        "nodes": len(model.graph),
        "edges": model.graph.num_edges,
        "labels": sum(model.graph.classes.values()),
        "classes": model.graph.classes,
        "position": model.store.position,
        "digest": model.digest(),
    }


def _overview(found: dict[str, Any]) -> Group:
    """Counts, classes and schema as tables."""
    schema = [tuple(line.values()) for line in found["schema"]]
    columns = ("column", "kind", "places", "scaling")
    classes = [(name, f"{count:,}") for name, count in found["classes"].items()]
    return Group(
        table_of("Columns", columns, schema, left=2),
        table_of("Classes", ("class", "labels"), classes),
        _counts(found["model"], found),
    )


def _counts(title: str, found: dict[str, Any]) -> Table:
    names = ("nodes", "edges", "waiting_edges", "labels", "position")
    rows = [(name.replace("_", " "), f"{found[name]:,}") for name in names if name in found]
    accuracy = found.get("prequential_accuracy")
    if accuracy is not None:
        rows.append(("accuracy of late labels", f"{accuracy:.3f}"))
    return table_of(title, ("", "count"), rows, caption=f"digest {found['digest'][:16]}")


def _record(one: Prediction) -> dict[str, Any]:
    values = {"probability": one.probability, "novelty": one.novelty}
    return {"id": one.id, "class": one.label, **values}


def _as_text(found: Sequence[Prediction], kind: str) -> str:
    """Predictions as CSV or JSONL."""
    if kind == "jsonl":
        return "".join(json.dumps(_record(one), ensure_ascii=False) + "\n" for one in found)
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(COLUMNS)
    rows.writerows(_record(one).values() for one in found)
    return text.getvalue()


def _write(found: Sequence[Prediction], out: Path, kind: str) -> None:
    """Write predictions as a whole; ids of both types become texts in Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    fresh = out.with_name(f".{out.name}.part")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        if kind == "parquet":
            columns = [[_record(one)[name] for one in found] for name in COLUMNS]
            if not all(isinstance(name, int) for name in columns[0]):
                columns[0] = [str(name) for name in columns[0]]
            parquet.write_table(pa.table(dict(zip(COLUMNS, columns, strict=True))), fresh)
        else:
            fresh.write_text(_as_text(found, kind))
        fresh.replace(out)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise OSError(f"{out} cannot be written: {error}; make room for it") from error
