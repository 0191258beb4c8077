"""Tables as they come: CSV, JSONL, Parquet and Arrow files or streams, and tables in memory.

Files are read in chunks, so that memory stays bounded, and all complaints about a file come in one
report.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet

from evergraph.checks import check_one_of
from evergraph.datasets.blocks import RecordError
from evergraph.datasets.columns import Chunk, from_arrow, from_columns, from_rows
from evergraph.datasets.csv_blocks import read_csv
from evergraph.datasets.jsonl_blocks import read_jsonl
from evergraph.datasets.report import Report

ROWS = 1 << 16
FORMATS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")


def read_tables(
    source: Any, report: Report | None = None, *, format: str | None = None
) -> Iterator[Chunk]:
    r"""The rows of a table, chunk by chunk.

    Args:
        source: a path (`-` is standard input), a folder of files, a binary stream, a pyarrow,
            pandas or polars table, a dictionary of columns or a list of dictionaries.
        report: collects complaints; without it, all are raised after the last chunk.
        format: of a path or stream: csv, tsv, jsonl, parquet or arrow; by default what the name
            ends with, or what the first bytes look like.

    Raises:
        TableError: with all complaints, unless there is a report to collect them.

    Example:
        >>> import io
        >>> csv = io.BytesIO(b"id,age\nann,31\nbob,\n")
        >>> [chunk.table.to_pydict() for chunk in read_tables(csv)][1]
        {'id': ['ann', 'bob'], 'age': ['31', '']}
    """
    own = Report() if report is None else report
    if format is not None:
        check_one_of("format", format, tuple(dict.fromkeys(FORMATS.values())))
    if isinstance(source, str | Path) or hasattr(source, "read"):
        for file in files_of(source, own):
            yield from _read_file(file, format, own)
    else:
        yield from _in_memory(source, own)
    if report is None:
        own.check()


def files_of(source: Any, report: Report) -> list[Any]:
    """The files of a folder in the order of their names; any other source as it is."""
    if not isinstance(source, str | Path) or not Path(source).is_dir():
        return [source]
    files = sorted(path for path in Path(source).iterdir() if format_of(path))
    if not files:
        rule = f"a folder must have files that end with {', '.join(FORMATS)}"
        report.add(str(source), None, None, "none", rule, "add them, or name another folder")
    return files


def name_of(source: Any) -> str:
    """What a source is called in complaints."""
    if isinstance(source, str | Path):
        return "standard input" if str(source) == "-" else str(source)
    if hasattr(source, "read"):
        return str(getattr(source, "name", "stream"))
    return "table"


def _in_memory(source: Any, report: Report) -> Iterator[Chunk]:
    if isinstance(source, Chunk):
        chunk = source
    elif isinstance(source, pa.Table | pa.RecordBatch):
        chunk = from_arrow(_as_table(source), report)
    elif isinstance(source, Mapping):
        chunk = from_columns(source, report)
    elif hasattr(source, "iloc") and hasattr(source, "columns"):  # pandas, without its index
        chunk = from_columns({name: source[name] for name in source.columns}, report)
    elif hasattr(source, "__arrow_c_stream__"):  # polars, DuckDB and others
        chunk = from_arrow(pa.table(source), report)
    elif isinstance(source, Sequence) and all(isinstance(row, Mapping) for row in source):
        chunk = from_rows(source, report)
    else:
        raise ValueError(
            "a table must be a path, a binary stream, a pyarrow, pandas or polars table, a "
            f"dictionary of columns or a list of dictionaries, got {type(source).__name__}"
        )
    for start in range(0, max(chunk.num_rows, 1), ROWS):
        yield chunk.slice(start, ROWS)


def _as_table(source: pa.Table | pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([source]) if isinstance(source, pa.RecordBatch) else source


def _read_file(source: Any, format: str | None, report: Report) -> Iterator[Chunk]:
    file = name_of(source)
    try:
        with open_stream(source) as stream:
            first = stream.read(16)
            found = format or format_of(source) or _sniff(first)
            joined = _Joined(first, stream)
            if found in ("csv", "tsv"):
                delimiter = "\t" if found == "tsv" else ","
                yield from read_csv(joined, report, file=file, delimiter=delimiter)
            elif found == "jsonl":
                yield from read_jsonl(joined, report, file=file)
            else:
                yield from _read_binary(source, joined, found, report, file)
    except RecordError as error:
        report.add(file, None, None, "more", str(error), "check quotes and line ends")
    except (OSError, pa.ArrowException, EOFError) as error:
        rule = f"a file that can be read is needed ({str(error).splitlines()[0][:100]})"
        report.add(file, None, None, file, rule, "check its name, rights and format")


class _Joined:
    """A stream of which the first bytes were read already."""

    def __init__(self, first: bytes, stream: Any) -> None:
        self._first = first
        self._stream = stream

    def readinto(self, place: memoryview, /) -> int:
        first, self._first = self._first[: len(place)], self._first[len(place) :]
        place[: len(first)] = first
        behind = place[len(first) :]
        if hasattr(self._stream, "readinto"):
            return len(first) + (self._stream.readinto(behind) or 0)
        read = self._stream.read(len(behind))
        behind[: len(read)] = read
        return len(first) + len(read)

    def read_all(self) -> bytes:
        parts = [self._first]
        while part := self._stream.read(1 << 24):
            parts.append(part)
        return b"".join(parts)


class open_stream:  # noqa: N801
    """Opens a path, or lends a stream that is open; decompresses by the end of the name."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._opened: Any = None

    def __enter__(self) -> Any:
        if str(self._source) == "-":
            return sys.stdin.buffer
        if not isinstance(self._source, str | Path):
            return self._source
        path = Path(self._source).expanduser()
        if path.suffix in _COMPRESSED:
            self._opened = io.BufferedReader(pa.input_stream(str(path), compression="detect"))
        else:
            self._opened = path.open("rb")
        return self._opened

    def __exit__(self, *_: object) -> None:
        if self._opened is not None:
            self._opened.close()


def format_of(source: Any) -> str | None:
    """The format that the name of a source ends with, or None."""
    path = Path(name_of(source))
    suffix = Path(path.stem).suffix if path.suffix in _COMPRESSED else path.suffix
    return FORMATS.get(suffix.lower())


def _sniff(first: bytes) -> str:
    if first.startswith(b"PAR1"):
        return "parquet"
    if first.startswith((b"ARROW1", b"\xff\xff\xff\xff")):
        return "arrow"
    return "jsonl" if first.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") else "csv"


def _read_binary(
    source: Any, joined: _Joined, format: str, report: Report, file: str
) -> Iterator[Chunk]:
    """Parquet and Arrow from a path, or from the whole of a stream."""
    plain = isinstance(source, str | Path) and str(source) != "-"
    if plain and Path(source).suffix not in _COMPRESSED:
        place: Any = str(Path(source).expanduser())
    else:
        place = io.BytesIO(joined.read_all())
    start = 1
    for batch in _batches(place, format):
        batch.validate(full=True)
        yield from_arrow(_as_table(batch), report, file=file, start=start)
        start += batch.num_rows


def _batches(place: Any, format: str) -> Iterator[pa.RecordBatch]:
    if format == "parquet":
        with parquet.ParquetFile(place) as file:
            yield pa.RecordBatch.from_pylist([], file.schema_arrow)
            yield from file.iter_batches(batch_size=ROWS)
        return
    with pa.OSFile(place) if isinstance(place, str) else pa.PythonFile(place) as stream:
        try:
            reader = pa.ipc.open_file(stream)
            batches = (reader.get_batch(number) for number in range(reader.num_record_batches))
        except pa.ArrowInvalid:
            stream.seek(0)
            reader = batches = pa.ipc.open_stream(stream)
        yield pa.RecordBatch.from_pylist([], reader.schema)
        yield from batches
