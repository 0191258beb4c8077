"""The schema of a model: read from a file, checked against the data, fitted to the store."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from pathlib import Path

from evergraph.datasets.infer import Evidence, decide
from evergraph.datasets.report import Report
from evergraph.datasets.schema import Schema
from evergraph.graph.records import Node
from evergraph.graph.store import Store

CHUNK = 10_000  # nodes that are read from the store at a time


def nodes_of(store: Store) -> Iterator[list[Node]]:
    """The nodes of a store, some at a time."""
    nodes = store.nodes()
    while part := list(islice(nodes, CHUNK)):
        yield part


def read_schema(path: Path) -> Schema:
    """The kinds of columns that a file holds; statistics in it are ignored."""
    try:
        return Schema(Schema.from_json(path.read_text()).columns)
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read ({error}); check its name and rights") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def check_columns(schema: Schema, present: Collection[str], known: Collection[str] = ()) -> None:
    """Complain about columns that are in the schema or in the data only.

    Args:
        schema: as the user has written it.
        present: the columns of the data.
        known: columns that the data might have: it is no error that they are in the schema.
    """
    report = Report()
    mine = {source: column for column in schema.columns for source in column.sources}
    for name in sorted(mine.keys() - present - set(known)):
        rule, kind = "a column of the schema must be in the data", mine[name].kind
        listed = ", ".join(sorted({*present, *known} - mine.keys())) or "none"
        way_out = f"correct its name (not in the schema: {listed}), or remove it"
        report.add("schema", None, name, kind, rule, way_out)
    for name in sorted(set(present) - mine.keys()):
        rule = "a column of the data must be in the schema"
        report.add("schema", None, name, "none", rule, 'add it; kind "drop" leaves it out')
    report.check()


def kinds(schema: Schema | None, found: Mapping[str, Evidence]) -> Schema:
    """The columns of a schema, which must be those that are there; without one, inferred ones."""
    if schema is None:
        return Schema(decide(found))
    check_columns(schema, found.keys())
    return Schema(schema.columns)


def refit(store: Store, schema: Schema | None = None) -> None:
    """Fit a schema to all nodes of a store, which become its base; in an open transaction.

    Kinds of columns stay unless a schema is given; its statistics are ignored.
    """
    old = Schema.from_json(str(store.get("schema")))
    if schema is not None:
        present = {name for part in nodes_of(store) for node in part for name in node.cells}
        check_columns(schema, present, [name for c in old.columns for name in c.sources])
    fresh, report = Schema((schema or old).columns), Report()
    for part in nodes_of(store):
        fresh.fit([node.cells for node in part], report)
    report.check()
    store.rebase()
    mark(store, fresh)


def mark(store: Store, schema: Schema) -> None:
    """Write down that a schema was fitted to all that is in a store now; a network begins anew."""
    store.set("schema", schema.to_json())
    store.set("network", None)
    store.set("base", json.dumps(store.base_counts()))
