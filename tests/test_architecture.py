"""Data flows one way: a module imports only from those before it, and siblings never meet."""

import ast
from pathlib import Path

import pytest

import evergraph

ROOT = Path(evergraph.__file__).parent

# The pipeline of the paper, in order. Modules that share a line are siblings.
ORDER = [
    ["sparse"],
    ["neighborhood"],
    ["graph"],
    ["dataset"],
    ["feature_graph"],
    ["embedding", "batch"],
    ["continuum", "layers"],
    ["blocks"],
    ["models", "baselines", "checkpoint", "memory", "training"],
    ["learner"],
    ["methods", "metrics"],
    ["datasets"],
    ["applications"],
    ["report", "bench"],
    ["cli"],
    ["__main__"],
]
# Inside packages whose files build on each other.
INNER = {
    "feature_graph": [
        ["equations", "kernels"],
        ["neighbors"],
        ["ops", "activation"],
        ["support"],
        ["dense", "rank_one", "fused"],
        ["build"],
    ],
    "methods": [
        ["anchors"],
        ["projection"],
        ["agem", "analytic", "der", "ewc", "finetune", "gem", "joint", "lwf", "mas", "replay"],
    ],
    "applications": [
        ["presets", "protocol", "action", "matching"],
        ["setup"],
        ["citation"],
        ["search", "paper"],
    ],
    "applications/action": [
        ["recording", "kernels"],
        ["dsads", "ward", "generate", "resample", "rows", "windows", "propagation"],
        ["folder", "disturbance", "streams"],
        ["scaling"],
        ["plain", "sources"],
        ["models", "statistics"],
        ["networks"],
        ["experiment", "recognizer"],
        ["tables", "online"],
    ],
    "cli": [
        ["console", "action_output", "running"],
        ["cells"],
        ["action", "action_tables", "bench", "learn", "match_tables", "paper"],
        ["match"],
        ["match_results"],
    ],
}
# The lower half never prints, reads files, seeds globally or chooses a device.
LOWER_HALF = [
    name
    for group in ORDER[: ORDER.index(["methods", "metrics"]) + 1]
    for name in group
    if name != "checkpoint"  # which is there to write files
]
FORBIDDEN = ("print(", " open(", "torch.manual_seed(", ".cuda(", "np.random.seed")


def modules():
    return sorted(p for p in ROOT.rglob("*.py") if p.name != "__init__.py")


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            if node.module.startswith("evergraph"):
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.startswith("evergraph"))


def rank(name, order):
    for position, group in enumerate(order):
        if name in group:
            return position
    return None


def test_every_module_has_its_place():
    found = {path.relative_to(ROOT).parts[0].removesuffix(".py") for path in modules()}
    assert found == {name for group in ORDER for name in group}


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_backwards(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    for target in imports(path):
        there = target.split(".")[1:]
        pairs = enumerate(zip(parts, there, strict=False))
        depth = next((i for i, (mine, other) in pairs if mine != other), None)
        if depth is None:
            continue
        order = INNER.get("/".join(parts[:depth]), []) if depth else ORDER
        known = rank(there[depth], order)
        assert depth or known is not None, target
        if known is not None:
            assert known < rank(parts[depth], order), f"{path} imports {target}"


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_the_lower_half_has_no_side_effects(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    if parts[0] in LOWER_HALF:
        code = path.read_text()
        assert not [word for word in FORBIDDEN if word in code]
