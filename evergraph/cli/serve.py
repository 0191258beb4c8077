"""The commands around a service: serve, at, compact."""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from evergraph.cli.console import AsJson, DataRoot, complaints, publish, remark, written
from evergraph.cli.curves import Target, curves
from evergraph.cli.model import Folder
from evergraph.cli.model_output import counts, record, state
from evergraph.extras import require

Offset = Annotated[int | None, typer.Option(help="How many events it had taken.")]
Moment = Annotated[
    str | None, typer.Option(help="An ISO time (UTC unless it says other), or seconds since 1970.")
]


def serve(
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="MODEL",
            help="A folder made by `train`; if there is none, the first events make it.",
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Anything but loopback needs a token and TLS.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    token_file: Annotated[
        Path | None, typer.Option(help="A file with the token that clients must send.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="The certificate for TLS.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="The key of the certificate.")] = None,
    demo: Annotated[
        bool, typer.Option(help="Let a graph grow through the interface: Cora, or a generated one.")
    ] = False,
    rate: Annotated[float, typer.Option(min=0.1, help="Events per second of the demo.")] = 100.0,
    quiet: Annotated[bool, typer.Option(help="Write no line of log for each request.")] = False,
    curves_to: Target = None,
    data_root: DataRoot = None,
) -> None:
    """Serve a model over HTTP: it learns from events, and answers.

    Events are answered when they are stored durably; a kill loses none of them. Questions are
    answered from the last classifier that is ready, and never wait for the next. The interface is
    described at /docs of the address that is printed.
    """
    with complaints(), ExitStack() as stack:
        for module in ("fastapi", "uvicorn", "prometheus_client", "plotly"):
            require(module, "serve")
        from evergraph.serve.guard import read_token
        from evergraph.serve.server import Address, Server, log_to_stderr

        if folder is None:
            if not demo:
                raise ValueError("a model folder is needed: give MODEL, or try --demo")
            place = stack.enter_context(tempfile.TemporaryDirectory(prefix="evergraph-demo-"))
            folder = Path(place) / "model"
        token = None if token_file is None else read_token(token_file)
        server = Server(folder, Address(host, port, token, tls_cert, tls_key))
        if curves_to is not None:
            point = stack.enter_context(curves(curves_to))
            server.service.monitor.each = lambda kept: point(kept["position"], _named(kept))
        if not quiet:
            log_to_stderr()
        stop = threading.Event()
        stack.callback(stop.set)

        def ready() -> None:
            _greet(server.url, token is not None)
            if demo:
                _play(server.url, token, rate, stop, root=data_root, cafile=tls_cert)

        server.run(ready)


def _named(kept: Mapping[str, Any]) -> dict[str, float | None]:
    """The curves of a service by the names that `learn` has for them."""
    names = {"accuracy": "accuracy/all", "recent": "accuracy/last", "held_out": "accuracy/held_out"}
    return {names.get(name, name): kept[name] for name in kept if name not in ("time", "position")}


def _greet(url: str, guarded: bool) -> None:
    """Print the address, and the first three requests."""
    token = ' -H "Authorization: Bearer $TOKEN"' if guarded else ""
    node, label = '{"type": "node", "id": "ann", "age": 31}', '{"id": "ann", "label": "editor"}'
    typer.echo(f"evergraph serves on {url} (the live page; the interface: {url}/docs)")
    typer.echo(f"  curl{token} {url}/events -d '{node}'")
    typer.echo(f"  curl{token} {url}/label -d '{label}'")
    typer.echo(f"""  curl{token} {url}/predict -d '{{"ids": ["ann"]}}'""")


def _play(
    url: str, token: str | None, rate: float, stop: threading.Event, **options: Path | None
) -> None:
    """Start the demo beside the service."""
    from evergraph.serve.demo import play

    def work() -> None:
        try:
            sent = play(url, token, rate, stop, **options)
            remark(f"the demo has ended after {sent:,} events; the service goes on", err=True)
        except (ValueError, OSError) as error:
            if not stop.is_set():
                remark(f"the demo has ended: {error}", err=True)

    threading.Thread(target=work, name="demo", daemon=True).start()


def at(
    folder: Folder,
    offset: Offset = None,
    time: Moment = None,
    node: Annotated[
        list[str] | None, typer.Option(help="Predict this node as of then; may be repeated.")
    ] = None,
    out: Annotated[
        Path | None, written("Make a model folder of it, for all other commands.", folder=True)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show a model as it was at an offset or a time of its history.

    The history begins when the model is first served. What was forgotten since is not in it.
    """
    from evergraph.model import Model

    with complaints(), tempfile.TemporaryDirectory() as place:
        target = Path(place) / "model" if out is None else out
        with Model.at(folder, target, offset=offset, time=seconds(time)) as model:
            found: dict[str, Any] = {"model": str(folder), **state(model)}
            found["predictions"] = [record(one) for one in model.predict(node)] if node else []
    publish(found, as_json, None, lambda: counts(f"{folder}, as it was", found))
    if not as_json:
        for one in found["predictions"]:
            typer.echo(json.dumps(one, ensure_ascii=False))


def compact(
    folder: Folder, offset: Offset = None, time: Moment = None, as_json: AsJson = False
) -> None:
    """End the history of a model before an offset, a time, or now."""
    from evergraph.model import Model

    with complaints(), Model.open(folder) as model:
        model.compact(offset=offset, time=seconds(time))
        found = {"model": str(folder), "history": model.store.history.first, **state(model)}
    publish(found, as_json, None, lambda: counts(str(folder), found))


def seconds(moment: str | None) -> float | None:
    """Seconds since 1970 of a time as the user writes it."""
    if moment is None:
        return None
    try:
        return float(moment)
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(moment)
    except ValueError:
        raise ValueError(
            f"a time must be like 2026-05-31T12:00:00Z or seconds since 1970, got {moment!r}"
        ) from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
