"""Run all fuzzers at length, and write what they found.

python -m tests.fuzz.run [OUT] [KIND [SEED]]

Cases come in chunks, each with a seed of its own: KIND and SEED run a chunk that failed again.
"""

import json
import sys
import traceback
import warnings
from collections import Counter
from pathlib import Path

import torch
from hypothesis import HealthCheck, given, seed, settings

from evergraph.evaluate.evidence import provenance
from evergraph.evaluate.run import SCHEMA
from tests.fuzz import batches, events, files, pictures, states

KINDS = {
    "batches": (10_000, batches.batches, batches.trial),
    "events": (10_000, events.events, events.trial),
    "tables": (5_000, files.tables, files.table_trial),
    "checkpoints": (2_400, states.states, states.trial),
    "model folders": (600, states.folders, states.folder_trial),
    "images": (1_000, pictures.pictures, pictures.trial),
    "recordings": (1_000, files.recordings, files.recording_trial),
}
CHUNK = 200
LENIENT = {
    "deadline": None, "database": None, "suppress_health_check": list(HealthCheck),
    "print_blob": False,
}  # fmt: skip


def chunk(kind, number, size=CHUNK):
    """One chunk of cases: how often each outcome came; raises what a case raises."""
    _, strategy, trial = KINDS[kind]
    outcomes = Counter()

    @seed(number)
    @settings(max_examples=size, **LENIENT)
    @given(strategy())
    def cases(case):
        outcomes[trial(case)] += 1

    cases()
    return outcomes


def main(out, kinds, only=None):
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    evidence, cells = provenance(), []
    for kind in kinds:
        total, outcomes, failures = KINDS[kind][0], Counter(), []
        numbers = range(total // CHUNK) if only is None else [only]
        for number in numbers:
            try:
                outcomes += chunk(kind, number)
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                last = "".join(traceback.format_exception_only(error)).strip()
                failures.append({"seed": number, "error": last})
                print(f"{kind}, seed {number}: {last}", flush=True)
            done = sum(outcomes.values())
            print(f"{kind}: {done:,} of {total:,}, {len(failures)} failures", flush=True)
        cells.append({"kind": kind, "outcomes": dict(outcomes), "failures": failures})
    config = {"cases": {kind: KINDS[kind][0] for kind in kinds}, "chunk": CHUNK}
    result = {"schema": SCHEMA, **evidence, "config": config, "cells": cells}
    out.write_text(json.dumps(result, indent=1) + "\n")
    return any(cell["failures"] for cell in cells)


if __name__ == "__main__":
    place = Path(sys.argv[1] if len(sys.argv) > 1 else "results/fuzz.json")
    chosen = sys.argv[2:3] or [*KINDS]
    sys.exit(main(place, chosen, int(sys.argv[3]) if len(sys.argv) > 3 else None))
