"""The commands of the model folder: train, predict, forget, refit, inspect."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from typer.core import TyperCommand

from evergraph.cli.console import (
    AsJson,
    DataRoot,
    complaints,
    progress,
    publish,
    remark,
    written,
)
from evergraph.cli.data_tables import tables_of
from evergraph.cli.model_output import as_text, counts, overview, record, state, write
from evergraph.cli.settings import Set, SettingsFile, given_settings

if TYPE_CHECKING:
    from evergraph.cluster import Cluster
    from evergraph.datasets.schema import Schema
    from evergraph.model import Model, Settings

Folder = Annotated[Path, typer.Argument(metavar="MODEL", help="A folder made by `train`.")]
Kinds = Annotated[
    Path | None, typer.Option("--schema", help="A file of kinds, as `inspect --schema` prints it.")
]
WEIGHTS = "The weights of the network keep the influence of what is forgotten."
IdColumn = Annotated[str, typer.Option("--id", help="The column of ids in the table of nodes.")]


def train(
    data: Annotated[
        str,
        typer.Argument(
            help="A folder with tables `nodes` and `edges` (CSV, JSONL, Parquet or Arrow files, or "
            "folders of them), or a name that `evergraph datasets` lists."
        ),
    ],
    out: Annotated[Path, written("The model folder to make.", folder=True)],
    schema: Kinds = None,
    schema_out: Annotated[
        Path | None, written("Write the kinds of columns to this file, to be edited.")
    ] = None,
    id: IdColumn = "id",
    learner: Annotated[
        str,
        typer.Option(
            help="Who tells classes: `exact` (the closed form), `network` (FGN with replay), or "
            "`both` (the mean of the two)."
        ),
    ] = "exact",
    unknown_ends: Annotated[
        str, typer.Option(help="Edges to nodes that are not there: `wait`, `drop` or `error`.")
    ] = "wait",
    pairs: Set = None,
    settings: SettingsFile = None,
    engine: Annotated[
        str, typer.Option(help="`local`, or `ray` for a folder of shards (see docs/scale.md).")
    ] = "local",
    shards: Annotated[int, typer.Option(min=1, help="Of --engine ray: how many processes.")] = 2,
    address: Annotated[
        str | None, typer.Option(help="Of --engine ray: a cluster; default: this machine.")
    ] = None,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Make a model folder from tables of nodes and edges.

    It prints what the columns were taken for. Numbers are standardized, categories and words
    hashed, dates read, gaps filled; edges to nodes that are not there wait for them (see
    --unknown-ends). All complaints come at once. In a table with a column `split`, labels of test
    and val are not learned: accuracy on them is printed.
    """
    from evergraph.datasets.schema import Schema
    from evergraph.model import Settings
    from evergraph.model.schemas import read_schema

    with complaints(), progress(as_json) as shown:
        named = {"learner": learner, "unknown_ends": unknown_ends}
        made = Settings.from_mapping({**named, **given_settings(pairs, settings)})
        given = None if schema is None else read_schema(schema)
        task = shown.add_task(f"reading {data}", total=None)
        nodes, edges = tables_of(data, data_root, lambda what: shown.update(task, description=what))
        shown.update(task, description=f"learning {data}")
        begun, tables = time.perf_counter(), (nodes, edges)
        with _trained(out, tables, engine, shards, address, given, made, id) as model:
            seconds = time.perf_counter() - begun
            found = {"model": str(out), **model.inspect(), "seconds": seconds}
            if engine == "ray":
                found |= {"shards": shards, "processes": found["shards"]}
            if schema_out is not None:
                schema_out.parent.mkdir(parents=True, exist_ok=True)
                schema_out.write_text(Schema(model.schema.columns).to_json())
    publish(found, as_json, None, lambda: overview(found))
    if not (as_json or found.get("held_back")):
        remark("To see its accuracy, name test nodes in a column `split`; see docs/model.md.")


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
            write(found, out, kind)
        if as_json:
            typer.echo(json.dumps([record(one) for one in found], indent=1))
        elif out is None:
            sys.stdout.write(as_text(found, kind))
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
    """Take nodes, edges or labels out of a model, with all traces.

    All that is named goes, or nothing. Afterwards the model is what it would be without them, and
    the files hold no byte of them. An id that is written as an integer is one, as in tables.
    Options may be repeated. Of a network, the weights keep the influence of what is forgotten; what
    it remembers is made anew.
    """
    from evergraph.datasets.fields import id_of

    with complaints():
        nodes, labels = ([id_of(one) for one in given or ()] for given in (node, label))
        edges = [(id_of(a), id_of(b)) for a, b in map(json.loads, edge or ())]
        if not (nodes or edges or labels):
            raise ValueError("nothing to forget: give --node ID, --edge A B or --label ID")
        with _open(folder) as model:
            model.forget(nodes, edges, labels)
            gone = {"nodes": len(nodes), "edges": len(edges), "labels": len(labels)}
            found = {"forgotten": gone, **state(model)}
            if model.state.network is not None:
                found["warning"] = WEIGHTS
    publish(found, as_json, None, lambda: counts(f"{folder}, afterwards", found))
    if "warning" in found and not as_json:
        remark(found["warning"], style="yellow")


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


def refit(folder: Folder, schema: Kinds = None, as_json: AsJson = False) -> None:
    """Take statistics of columns and landmarks of the nodes of today.

    Afterwards the model is what `train` makes of its graph. --schema changes kinds of columns.
    """
    from evergraph.model.schemas import read_schema

    with complaints():
        given = None if schema is None else read_schema(schema)
        with _open(folder) as model:
            model.refit(given)
            found = {"model": str(folder), **model.inspect()}
    publish(found, as_json, None, lambda: overview(found))


def inspect(
    folder: Folder,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print only the kinds of columns, as a file to edit.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what a model holds: counts, classes, accuracy, digest."""
    from evergraph.datasets.schema import Schema

    with complaints(), _open(folder, readonly=True) as model:
        if schema:
            sys.stdout.write(Schema(model.schema.columns).to_json())
            return
        found = {"model": str(folder), **model.inspect()}
    publish(found, as_json, None, lambda: overview(found))


def _trained(
    out: Path,
    tables: tuple[Any, Any],
    engine: str,
    shards: int,
    address: str | None,
    schema: Schema | None,
    settings: Settings,
    id: str,
) -> Model | Cluster:
    """Train on this process or on Ray."""
    from evergraph.checks import check_one_of
    from evergraph.model import Model

    check_one_of("the engine", engine, ("local", "ray"))
    if engine == "local":
        return Model.train(out, *tables, schema=schema, settings=settings, id=id)
    from evergraph.cluster import Cluster

    more = {"shards": shards, "address": address, "schema": schema, "settings": settings, "id": id}
    return Cluster.train(out, *tables, **cast(Any, more))


# -- reading ----------------------------------------------------------------------------------


def _open(folder: Path, readonly: bool = False) -> Model:
    from evergraph.model import Model

    return Model.open(folder, readonly=readonly)
