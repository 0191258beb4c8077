"""Parts of a user's own, from outside the package: they run, and resume like any other."""

import ast
import runpy
from pathlib import Path

import pytest
import torch

import evergraph
from evergraph import FGN, Finetune, Learner, Memory, Replay, Reservoir, Training, node_continuum
from evergraph.datasets import generate
from evergraph.datasets.generate import Growth

EXAMPLES = Path(__file__).parent.parent / "examples"
AT_LEAST = {
    "own_method": 0.3,  # chance is a seventh
    "own_model": 0.3,
    "own_memory": 0.3,
    "own_source": 0.6,  # chance is a third
    "own_task": 0.6,  # chance is a half
    "compare_methods": 0.6,  # chance is a quarter
    "social": 0.6,  # chance is a third
}


@pytest.mark.parametrize("name", AT_LEAST)
def test_the_example_works(name, capsys):
    found = runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert AT_LEAST[name] < found["score"] <= 1
    assert f"{found['score']:.2f}" in capsys.readouterr().out


def test_examples_are_short_and_use_public_names():
    files = sorted(EXAMPLES.glob("*.py"))
    assert [file.stem for file in files] == sorted(AT_LEAST)
    for file in files:
        text = file.read_text()
        assert len(text.splitlines()) <= 60, file.name
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("evergraph"):
                module = __import__(node.module, fromlist=["__all__"])
                assert {alias.name for alias in node.names} <= set(module.__all__), file.name
            assert (
                not isinstance(node, ast.Attribute) or node.attr[0] != "_" or node.attr[:2] == "__"
            )


def part(example, name):
    return runpy.run_path(str(EXAMPLES / f"{example}.py"))[name]


DATA = generate(Growth(nodes=80, classes=3, features=70, words=8, citations=3))


def own_method():
    return Learner(FGN(70), part("own_method", "Mistakes")(), Reservoir(20))


def own_model():
    model = part("own_model", "Perceptron")(70)
    return Learner(model, Replay(), Reservoir(20), Training(averaging=0.5))


def own_memory():
    return Learner(FGN(70), Replay(), Memory(part("own_memory", "Newest")(), 20))


def own_task():
    return Learner(FGN(70), Finetune(), task=part("own_task", "Questions")())


@pytest.mark.parametrize("make", [own_method, own_model, own_memory, own_task])
def test_own_parts_resume_to_the_last_bit(make, tmp_path):
    targets = None
    if make is own_task:
        targets = torch.stack([DATA.graph.labels < 1, DATA.graph.labels > 1], dim=1).float()
    first, second, third = list(node_continuum(DATA, scenario="data", targets=targets))[:3]
    whole = make()
    whole.observe(first)
    whole.observe(second)
    whole.save(tmp_path / "learner")
    late = make()
    late.load(tmp_path / "learner")
    for learner in (whole, late):
        learner.observe(third)
    assert torch.equal(late.output(first), whole.output(first))
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(late.model.state_dict()[name], tensor), name
    if whole.memory is not None:
        nodes, again = ([int(i.node[0]) for i in o.memory.items] for o in (whole, late))
        assert nodes == again


def test_every_public_name_is_there():
    assert all(hasattr(evergraph, name) for name in evergraph.__all__)
