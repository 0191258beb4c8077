"""Settings by name: `--set lr=0.05`, and `--settings FILE`, such as `tune --out` writes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from typer import Option

Set = Annotated[
    list[str] | None,
    Option("--set", metavar="NAME=VALUE", help="A setting; may be repeated: --set lr=0.05."),
]
SettingsFile = Annotated[
    Path | None,
    Option(
        "--settings",
        metavar="FILE",
        help="Settings as a JSON object; or the file of `tune --out`, whose best are taken; or a "
        "result.json. --set goes before it.",
    ),
]


def given_settings(
    pairs: Sequence[str] | None, path: Path | None, scenario: str = "data"
) -> dict[str, Any]:
    """The settings of a file and of `NAME=VALUE` pairs; a value is JSON, or else a word.

    Example:
        >>> given_settings(["lr=0.05", "hidden=[256]", "normalization=row"], None)
        {'lr': 0.05, 'hidden': [256], 'normalization': 'row'}
    """
    found = {} if path is None else _read(path, scenario)
    for pair in pairs or ():
        name, equals, text = pair.partition("=")
        if not (name and equals):
            raise ValueError(f"--set must be NAME=VALUE, such as lr=0.05, got {pair!r}")
        try:
            found[name.strip()] = json.loads(text)
        except json.JSONDecodeError:
            found[name.strip()] = text
    return found


def _read(path: Path, scenario: str) -> dict[str, Any]:
    """The settings of a file: an object of them, a search, or a result."""
    from evergraph.evaluate.search import choose

    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ValueError(f"--settings must be a file with JSON, but {path}: {error}") from error
    try:
        if "trials" in found:
            trials = found["trials"]
            order = "class" if scenario == "class" else "data"
            tried = trials[0]["validation_accuracy"]
            return dict(choose(trials, order if order in tried else next(iter(tried))))
        return dict(found["config"]["settings"] if "config" in found else found)
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"--settings must be an object of settings, a search of `tune --out` or a result, and "
            f"{path} is none"
        ) from error
