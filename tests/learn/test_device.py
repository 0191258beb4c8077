"""A network on another device learns what it learns on the CPU; items and outputs stay here."""

import pytest
import torch
from elsewhere import NAME, Elsewhere
from typer.testing import CliRunner

from evergraph import FGN, Learner, Reservoir, Training, baseline, node_continuum
from evergraph.cli import app
from evergraph.datasets import Growth, generate
from evergraph.learn.methods import METHODS
from evergraph.nn.model import device_of

DATA = generate(Growth(nodes=60, classes=3, features=80))
BATCHES = list(node_continuum(DATA, batch_size=6))[:5]
TRAINED = sorted(set(METHODS) - {"analytic", "kernel"})
NETWORKS = {
    "broadcast": lambda: FGN(80),
    "transform": lambda: FGN.preset("arxiv", 80, 0),
    "attention": lambda: FGN(80, attention="softmax"),
    "gat": lambda: baseline("gat", 80, hidden=(8,)),
    "gcn": lambda: baseline("gcn", 80, hidden=(8,)),
}


def made(place, method="replay", network="broadcast", **training):
    torch.manual_seed(0)
    model = NETWORKS[network]().to(place)
    settings = Training(**{"lr": 0.03, "steps": 2, **training})
    return Learner(model, METHODS[method](), Reservoir(20), settings)


def learned(place, *about, **training):
    learner = made(place, *about, **training)
    for batch in BATCHES:
        learner.observe(batch)
    return learner


def same(here, there):
    mine, theirs = (learner.output(BATCHES[0]) for learner in (here, there))
    assert theirs.device.type == "cpu"
    assert device_of(there.model).type == NAME
    torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4)
    assert here.memory.node.tolist() == there.memory.node.tolist()


@pytest.mark.parametrize("method", TRAINED)
def test_every_method_learns_the_same_elsewhere(method):
    here = learned("cpu", method)
    with Elsewhere():
        same(here, learned(NAME, method))


@pytest.mark.parametrize("network", sorted(set(NETWORKS) - {"broadcast"}))
def test_every_network_learns_the_same_elsewhere(network):
    small = {"lr": 0.003}  # large steps make rounding large, at roots of small numbers
    here = learned("cpu", "replay", network, **small)
    with Elsewhere():
        same(here, learned(NAME, "replay", network, **small))


@pytest.mark.parametrize(
    "training",
    [
        {"optimizer": "adam", "lr": 0.003},
        {"averaging": 0.5},
        {"momentum": 0.9, "weight_decay": 0.01},
    ],
)
def test_every_way_of_training_learns_the_same_elsewhere(training):
    here = learned("cpu", **training)
    with Elsewhere():
        same(here, learned(NAME, **training))


@pytest.mark.filterwarnings("ignore:for .* copying from a non-meta")  # torch takes it for empty
@pytest.mark.parametrize("method", ["replay", "ewc", "lwf", "der"])
def test_a_checkpoint_crosses_devices(method, tmp_path):
    first = learned("cpu", method, optimizer="adam", averaging=0.5)
    first.save(tmp_path / "state")
    with Elsewhere():
        there = made(NAME, method, optimizer="adam", averaging=0.5)
        there.load(tmp_path / "state")
        assert there.digest() == first.digest()
        for learner in (first, there):
            learner.observe(BATCHES[-1])
        same(first, there)
        there.save(tmp_path / "back")
    again = made("cpu", method, optimizer="adam", averaging=0.5)
    again.load(tmp_path / "back")
    torch.testing.assert_close(
        again.output(BATCHES[0]), first.output(BATCHES[0]), atol=1e-4, rtol=1e-3
    )


def test_dropout_draws_the_same_numbers_elsewhere():
    from evergraph.noise import draw_from, dropout

    def drawn(place):
        with draw_from(torch.Generator().manual_seed(3)):
            return dropout(torch.ones(50).to(place), 0.5).cpu()

    with Elsewhere():
        there = drawn(NAME)
    assert torch.equal(there, drawn("cpu"))


def test_the_second_device_refuses_what_a_gpu_refuses():
    with Elsewhere():
        there = torch.ones(3).to(NAME)
        assert float(there.sum()) == 3
        with pytest.raises(RuntimeError, match="two devices"):
            there + torch.ones(3)
        with pytest.raises(TypeError, match="numpy"):
            there.numpy()


@pytest.mark.parametrize("command", ["run", "compare", "tune"])
@pytest.mark.parametrize(("device", "more"), [("gpu", ""), ("meta", ""), ("cuda", "--engine ray")])
def test_a_device_that_is_not_there_is_one_line(command, device, more, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [command, "--dataset", "generated", "--device", device, *more.split()]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2
    assert done.stderr.startswith("Error: ")
    assert done.stderr.count("\n") == 1
    assert "device must be" in done.stderr
    assert repr(device) in done.stderr


def test_the_cpu_is_a_device(tmp_path):
    words = ["run", "--dataset", "generated", "--method", "analytic", "--seeds", "1", "--json"]
    done = CliRunner().invoke(app, [*words, "--device", "cpu", "--out", str(tmp_path)])
    assert done.exit_code == 0
