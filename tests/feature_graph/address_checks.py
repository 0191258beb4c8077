"""Compiled loops whose sums may depend on where arrays lie in memory; run by a slow test.

A loop that writes an array while it sums is compiled twice: in vectors, and one number after the
other for arrays that overlap or nearly touch. The two add up in another order, so that equal
batches may differ in their last bits. Sums must therefore stand in loops that write nothing.
"""

from __future__ import annotations

import re
from collections import deque
from importlib import import_module
from pathlib import Path

import pytest
from numba.core.registry import CPUDispatcher

from evergraph.feature_graph import compiled

TESTS = Path(__file__).parents[1]
LABEL = re.compile(r'^"?([\w.$-]+)"?:')
NEXT = re.compile(r'label %"?((?:vector|middle|vec)\.[\w.$-]*)"?')


def blocks_of(code: str) -> dict[str, str]:
    """The basic blocks of LLVM code by label."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in code.splitlines():
        label = LABEL.match(line)
        if label:
            lines = found.setdefault(label.group(1), [])
        else:
            lines.append(line)
    return {name: "\n".join(lines) for name, lines in found.items()}


def checked_sums(code: str) -> list[str]:
    """The labels of checks of addresses that lead to a vector sum."""
    blocks, found = blocks_of(code), []
    for check in (name for name in blocks if name.startswith("vector.memcheck")):
        seen, todo = {check}, deque([check])
        while todo:
            name = todo.popleft()
            text = blocks.get(name, "")
            if name.startswith("middle"):  # the end of the loop
                if "fadd" in text:
                    found.append(check)
                continue
            following = set(NEXT.findall(text)) - seen
            seen |= following
            todo.extend(following)
    return found


def main() -> int:
    """Compile what the tests of loops and networks use; print the loops that are found."""
    status = pytest.main(
        ["-q", "-p", "no:xdist", *(str(TESTS / n) for n in ("feature_graph", "nn"))]
    )
    looked_at = 0
    for file in sorted(Path(compiled.__file__).parent.glob("[a-z]*.py")):
        for name, made in vars(import_module(f"{compiled.__name__}.{file.stem}")).items():
            for signature in made.signatures if isinstance(made, CPUDispatcher) else ():
                looked_at += 1
                for check in checked_sums(made.inspect_llvm(signature)):
                    print(f"FOUND {file.stem}.{name} {check}")
    print(f"LOOKED AT {looked_at}")
    return int(status)


if __name__ == "__main__":
    raise SystemExit(main())
