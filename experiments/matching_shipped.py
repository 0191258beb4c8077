"""The matcher that comes with the package, on pictures that it never saw.

Both of its networks were trained on pictures of the first split; this tests them on the test
pictures of that split, the stereo pair and rendered scenes, with and without scale and
orientation, and on pairs of different pictures, in half a minute:
`python -m experiments.matching_shipped --out results/matching_shipped.json`.
"""

from __future__ import annotations

from dataclasses import asdict

import typer

from evergraph.apps.matching.baselines import settled
from evergraph.apps.matching.matcher import Matcher
from evergraph.cli.console import AsJson, Out, complaints, progress
from evergraph.cli.match import quiet_threads
from evergraph.evaluate.evidence import provenance
from experiments.matching import aggregate, cells_of, page, tell_unrelated, unrelated_matches
from experiments.matching_results import publish
from experiments.matching_tests import Settings, bare_tests, related_tests

SLOW = "GMS"


def main(test: int = 60, frames: int = 8, out: Out = None, as_json: AsJson = False) -> None:
    """Test the shipped matcher beside nearest neighbors, the ratio test and AdaLAM."""
    evidence = provenance()
    quiet_threads()
    settings = Settings(test=test, frames=frames)
    tool = Matcher.pretrained()
    methods = {name: match for name, match in settled().items() if name != SLOW}
    methods = {"evergraph": tool.match_pair, **methods}
    with complaints(), progress(as_json) as shown:
        task = shown.add_task("making pairs", total=len(methods) + 1)
        known = related_tests(0, settings)
        bare = bare_tests(0, settings, known)
        cells = []
        for method, match in methods.items():
            shown.update(task, description=method, advance=1)
            more = {"setting": "", "train_seconds": 0.0}
            cells += cells_of({**known, **bare}, method, match, 0, more)
        shown.update(task, description="pairs of different pictures")
        found = unrelated_matches(methods, known)
        corners = {
            "homographies of photographs": bare["homographies of photographs, corners"],
        }
        found |= {f"{name}, corners": mine for name, mine in
                  unrelated_matches(methods, corners).items()}  # fmt: skip
        shown.advance(task)
    config = {"test": test, "frames": frames, "views": asdict(settings.views)}
    body = {"cells": aggregate(cells), "unrelated": tell_unrelated([found])}
    publish(page, as_json, out, 1, **evidence, config=config, **body)


if __name__ == "__main__":
    typer.run(main)
