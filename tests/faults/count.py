"""Raise at every call inside observe, save and load of every method; write how many were survived.

python -m tests.faults.count [OUT [METHOD ...]]

Every count is written at once; a second call at the same commit makes those that are missing.
"""

import json
import sys
import warnings
from dataclasses import asdict
from pathlib import Path

import torch

from evergraph.evaluate.evidence import provenance
from evergraph.evaluate.run import SCHEMA
from evergraph.learn.methods import METHODS
from tests.faults.points import INTERRUPT, SYSTEM, every_point


def main(out: Path, methods: list[str]) -> int:
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", "unclosed", ResourceWarning)  # files of interrupted calls
    config = {"interrupted": [*INTERRUPT], "refused": [*SYSTEM]}
    result = {"schema": SCHEMA, **provenance(), "config": config, "cells": []}
    if out.exists():
        there = json.loads(out.read_text())
        if there["commit"] == result["commit"]:
            result = there
    cells = result["cells"]
    done = {(cell["method"], cell["action"]) for cell in cells}
    for method in methods:
        for action, count in every_point(method).items():
            if (method, action) not in done:
                tally = count()
                cells.append({"method": method, "action": action, **asdict(tally)})
                out.write_text(json.dumps(result, indent=1) + "\n")
                wrong = len(tally.wrong)
                print(f"{method}: {action}, {tally.points} exceptions, {wrong} wrong", flush=True)
    return sum(len(cell["wrong"]) for cell in cells)


if __name__ == "__main__":
    place = Path(sys.argv[1] if len(sys.argv) > 1 else "results/faults.json")
    sys.exit(min(main(place, sys.argv[2:] or [*METHODS]), 1))
