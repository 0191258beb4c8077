"""Data flows one way: a module imports only from those before it, and siblings never meet.

Every module has a place below, and every import counts, wherever it is written: at the top, in a
function, for types only, or as text for `import_module`.
"""

import ast
import shutil
from pathlib import Path

import pytest

import evergraph

ROOT = Path(evergraph.__file__).parent

# The way of an item. What shares a line are siblings.
ORDER = {
    "": [
        ["checks", "extras", "noise", "prediction"],
        ["graph"],
        ["stream"],
        ["feature_graph"],
        ["nn"],
        ["learn"],
        ["testing"],
        ["evaluate"],
        ["datasets"],
        ["apps", "model"],
        ["serve"],
        ["cluster"],
        ["cli"],
        ["__main__"],
    ],
    "graph": [
        ["rows", "ids", "database"],
        ["neighbors", "hops"],
        ["graph", "arena"],
        ["links", "nodes", "dataset"],
        ["bulk", "sums", "frozen", "records", "history"],
        ["contents"],
        ["growing", "store"],
    ],
    "stream": [["batch", "schedule"], ["source"], ["continuum"]],
    "feature_graph": [
        ["equations"],
        ["compiled"],
        ["ops", "fixed_point"],
        ["neighborhoods"],
        ["support"],
        ["dense", "rank_one", "fused"],
        ["lean", "build"],
        ["embedding", "kernel"],
    ],
    "feature_graph/compiled": [
        ["kept"],
        ["twins", "fixed_point", "vector"],
        ["support"],
        ["collect", "mixing", "lanes", "activation"],
        ["norm", "embedding"],
        ["readout", "broadcast"],
        ["network"],
    ],
    "nn": [
        ["attention", "messages", "norm"],
        ["heads", "layers"],
        ["model", "blocks"],
        ["fgn"],
        ["baselines"],
    ],
    "learn": [
        ["pool", "drift", "kept_rows", "ranks"],
        ["transaction"],
        ["checkpoint", "packed", "ranking", "training", "tasks"],
        ["tables"],
        ["slots"],
        ["memory"],
        ["selection"],
        ["gate", "shared"],
        ["intake"],
        ["state"],
        ["learner", "sums", "dual"],
        ["methods", "solution"],
        ["exact", "parallel"],
        ["network", "explain"],
    ],
    "learn/methods": [
        ["analytic", "consolidation", "distillation", "gem", "kernel", "replay", "retrieval"],
        ["gradient_selection", "sparsified", "task_free", "topology"],
    ],
    "testing": [["faults", "others", "spoiled"], ["learner"]],
    "evaluate": [
        ["metrics", "evidence", "figures", "presets", "protocols", "significance"],
        ["run"],
        ["config"],
        ["search"],
    ],
    "datasets": [
        ["catalog", "formats", "generate", "planetoid"],
        ["convert", "fetch", "blocks", "report", "sums"],
        ["columns"],
        ["cells", "csv_blocks", "jsonl_blocks"],
        ["fields", "objects", "tables", "vectors"],
        ["encoding", "events", "graph_tables"],
        ["folder", "infer", "redis_stream"],
        ["schema"],
    ],
    "apps": [["action", "matching"]],
    "apps/action": [
        ["recording"],
        ["csv_stream", "outliers", "resample", "score", "windows"],
        ["features", "network", "published", "splits"],
        ["novelty", "rich", "sources"],
        ["search", "teaching"],
        ["recognizer"],
        ["choice", "online"],
    ],
    "apps/matching": [
        ["images"],
        ["features"],
        ["candidates", "truth"],
        ["verify"],
        ["arrangements", "evaluate", "homography", "tartanair"],
        ["baselines"],
        ["frames"],
        ["matcher", "sources"],
        ["train"],
    ],
    "model": [
        ["folder", "schemas", "runs"],
        ["tables", "view"],
        ["state"],
        ["predictions", "merging"],
        ["record"],
        ["events", "travel"],
        ["model"],
        ["classifier"],
    ],
    "serve": [
        ["asked", "limits", "monitor", "reference", "guard", "client"],
        ["jobs", "shown"],
        ["writer", "bodies", "commit"],
        ["service"],
        ["answers", "metrics", "pages", "proof"],
        ["api"],
        ["app"],
        ["demo", "server"],
    ],
    "cluster": [
        ["graph", "partition"],
        ["holding", "reader"],
        ["shard"],
        ["checking", "engine", "folder"],
        ["asking", "tasks"],
        ["loading", "state"],
        ["surroundings"],
        ["cluster", "launch"],
    ],
    "cli": [
        ["console", "curves", "data_tables", "event_files", "settings"],
        ["action_output", "engines", "match_options", "match_output", "model_output", "run_output"],
        ["action", "learn", "match", "model"],
        ["tune", "serve", "feed"],
    ],
}
# The lower half never prints, seeds globally or chooses a device; only checkpoints touch files.
LOWER_HALF = ("graph", "stream", "feature_graph", "nn", "learn", "evaluate")
FORBIDDEN = ("print(", " open(", "torch.manual_seed(", ".cuda(", "np.random.seed")
ALLOWED = {
    "evaluate/config.py": "torch.manual_seed(",  # inside fork_rng: the initial parameters
}


def modules(root):
    return sorted(p for p in root.rglob("*.py") if "__pycache__" not in p.parts)


def name_of(path, root):
    """The dotted name of a module below the package, without the package itself."""
    parts = path.relative_to(root).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


def imports(path, root):
    """All names below the package that a module imports, as tuples of parts."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = ("evergraph", *path.relative_to(root).parts[: -node.level])
                base = ".".join((*above, *base.split("."))) if base else ".".join(above)
            if base.split(".")[0] == "evergraph":
                yield from ((*base.split(".")[1:], alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "evergraph":
                    yield tuple(alias.name.split(".")[1:])
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "import_module":
            for text in node.args:
                if isinstance(text, ast.Constant) and str(text.value).startswith("evergraph."):
                    yield tuple(str(text.value).split(".")[1:])


def rank(name, package):
    for position, group in enumerate(ORDER.get(package, [])):
        if name in group:
            return position
    return None


def violations(root):
    """What breaks the order: unknown modules, imports of siblings or of what comes later."""
    found = []
    for path in modules(root):
        me = name_of(path, root)
        for depth, part in enumerate(me):
            if rank(part, "/".join(me[:depth])) is None:
                found.append(f"{'/'.join(me)} has no place in the order")
        if not me:
            continue  # the package itself offers names of all parts
        for target in imports(path, root):
            depth = next(
                (i for i, (a, b) in enumerate(zip(me, target, strict=False)) if a != b), None
            )
            if depth is None:
                continue  # a package offers the names of its own modules
            package = "/".join(me[:depth])
            mine, theirs = rank(me[depth], package), rank(target[depth], package)
            if theirs is None and (depth or target == ("__version__",)):
                continue  # a name that the package defines, not a module of it
            if mine is None or theirs is None or theirs >= mine:
                found.append(f"{'/'.join(me)} imports {'.'.join(target)}")
    return found


def test_imports_point_backwards():
    assert violations(ROOT) == []


@pytest.mark.parametrize(
    ("place", "line", "complaint"),
    [
        ("graph/rows.py", "from evergraph.learn.learner import Learner", "graph/rows imports"),
        ("graph/rows.py", "def f():\n    from evergraph.cli import app", "graph/rows imports"),
        ("nn/heads.py", "from evergraph.nn.layers import FeatureBroadcast", "nn/heads imports"),
        ("nn/heads.py", "from .layers import FeatureBroadcast", "nn/heads imports"),
        ("datasets/catalog.py", "import evergraph.apps.matching.matcher", "catalog imports"),
        ("datasets/catalog.py", "from evergraph.datasets.formats import x", "catalog imports"),
        (
            "apps/matching/truth.py",
            "from evergraph.apps.action.windows import Windows",
            "apps/matching/truth imports",
        ),
        (
            "learn/memory.py",
            "if False:  # as TYPE_CHECKING\n    from evergraph.learn.learner import Learner",
            "learn/memory imports",
        ),
        ("evaluate/metrics.py", "import_module('evergraph.datasets')", "evaluate/metrics imports"),
        ("nn/newcomer.py", "", "nn/newcomer has no place"),
        ("apps/matching/newcomer.py", "", "apps/matching/newcomer has no place"),
    ],
)
def test_planted_violations_are_found(tmp_path, place, line, complaint):
    copy = tmp_path / "evergraph"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns("__pycache__", "*.safetensors"))
    path = copy / place
    path.write_text((path.read_text() if path.exists() else "") + f"\n{line}\n")
    assert any(complaint in found for found in violations(copy))


@pytest.mark.parametrize("path", modules(ROOT), ids=lambda p: str(p.relative_to(ROOT)))
def test_the_lower_half_has_no_side_effects(path):
    place = path.relative_to(ROOT)
    if place.parts[0] in LOWER_HALF and place.name != "checkpoint.py":
        allowed = ALLOWED.get(str(place), "nothing")
        code = path.read_text()
        assert not [word for word in FORBIDDEN if word in code and word != allowed]


def functions_with(test):
    """The functions outside the compiled folder that hold a node for which a test is true."""
    found = set()
    for path in modules(ROOT):
        if "compiled" in path.parts:
            continue
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef) and any(map(test, ast.walk(function))):
                found.add(f"{'/'.join(name_of(path, ROOT))}:{function.name}")
    return found


def called(*names):
    def test(node):
        if not isinstance(node, ast.Call):
            return False
        return getattr(node.func, "attr", getattr(node.func, "id", "")) in names

    return test


def test_each_equation_is_defined_once():
    """Each formula has one home; other files call it, or are exact forms tested against it."""

    def root_of_absolute(node):  # |x|.sqrt() of Eq. (4)
        return called("sqrt", "sqrt_")(node) and any(
            called("abs", "abs_")(inner) for inner in ast.walk(node)
        )

    assert functions_with(root_of_absolute) == {"feature_graph/equations:sgnroot"}
    outer = lambda node: isinstance(node, ast.Constant) and "cf,...pcg->" in str(node.value)  # noqa: E731
    assert functions_with(outer) == {"feature_graph/equations:feature_adjacency"}
    assert functions_with(called("leaky_relu")) == {"nn/attention:forward", "nn/blocks:activate"}
    shares = functions_with(called("mean_coefficient"))  # Eq. (5), for three layouts
    assert shares == {
        "feature_graph/neighborhoods:mean",
        "feature_graph/neighborhoods:coefficients",
    }
    assert functions_with(called("linear")) == {"nn/layers:_map", "nn/heads:forward"}  # Eq. (8)
    assert functions_with(called("collect")) == {
        "nn/layers:forward",
        "nn/blocks:forward",
    }  # Eq. (7)
