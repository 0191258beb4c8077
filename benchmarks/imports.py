"""What it costs to import the package, against torch alone: CPU time of fresh processes."""

from __future__ import annotations

import statistics
import subprocess
import sys

import typer

from evergraph.cli.console import AsJson, Out, publish, table_of
from evergraph.evaluate.evidence import provenance

STATEMENTS = {
    "nothing": "pass",
    "torch": "import torch",
    "evergraph": "import evergraph",
    "learner": "from evergraph import FGN, Learner",
    "help": "import evergraph.cli",
}
CODE = "import time; start = time.process_time(); {}; print(time.process_time() - start)"


def cpu_seconds(statement: str) -> float:
    """CPU seconds of one statement in a process of its own."""
    command = [sys.executable, "-c", CODE.format(statement)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def command(repeats: int = 5, as_json: AsJson = False, out: Out = None) -> None:
    """Compare `import evergraph` and the command line with `import torch`, in turns."""
    times: dict[str, list[float]] = {name: [] for name in STATEMENTS}
    for _ in range(repeats):
        for name, statement in STATEMENTS.items():
            times[name].append(cpu_seconds(statement))
    best = {name: statistics.median(values) for name, values in times.items()}
    ratios = {f"{name}_over_torch": best[name] / best["torch"] for name in STATEMENTS}
    rows = [[name, f"{1e3 * best[name]:.0f}", f"{best[name] / best['torch']:.2f}"] for name in best]
    columns = ("import", "CPU ms", "over torch")
    result = {**provenance(), "cpu_seconds": best, **ratios}
    publish(result, as_json, out, lambda: table_of("Import cost, median", columns, rows))


if __name__ == "__main__":
    typer.run(command)
