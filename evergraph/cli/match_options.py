"""What the commands of matching take alike: which matcher, which points, where results go."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evergraph.cli.console import written

if TYPE_CHECKING:
    from evergraph.apps.matching.matcher import Matcher

MatcherFile = Annotated[
    Path | None,
    typer.Option("--matcher", help="A matcher from `match train`; default: the one we ship."),
]
OtherDetector = Annotated[
    str | None,
    typer.Option(
        "--detector", help="`sift`, `orb` or `corners`; by default the matcher's own, or sift."
    ),
]
OutFolder = Annotated[Path, written("Folder for matches.npz and matches.png.", folder=True)]
Saved = Annotated[Path, written("Where the matcher goes.")]
Points = Annotated[int, typer.Option(min=1, help="Points of each image at the most.")]
Threshold = Annotated[
    float | None,
    typer.Option(help="Least confidence of a match; default: where F1 of a pair should be best."),
]
Certain = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Matches of probability 0.7 that images of one scene must have; with fewer there are "
        "none. 0: no such decision. Default: 4.",
    ),
]


def open_matcher(
    path: Path | None,
    detector: str | None,
    points: int,
    threshold: float | None,
    certain: int | None = None,
) -> Matcher:
    """The matcher of a file, or the one we ship, with changes from the command line."""
    from evergraph.apps.matching.matcher import Matcher

    tool = Matcher.pretrained(detector or "sift") if path is None else Matcher.load(path)  # type: ignore[arg-type]
    given: dict[str, Any] = {"detector": detector, "points": points}
    given |= {"threshold": threshold, "certain": certain}
    return replace(tool, **{name: one for name, one in given.items() if one is not None})
