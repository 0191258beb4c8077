"""What is public is documented, with an example that runs (doctests run in this same suite)."""

import inspect

import pytest

import evergraph


def examples(name):
    """How many lines of examples the docstring of a public name has."""
    found = evergraph if name == "__version__" else getattr(evergraph, name)
    return (inspect.getdoc(found) or "").count(">>> ")


@pytest.mark.parametrize("name", evergraph.__all__)
def test_a_public_name_has_an_example(name):
    assert examples(name) > 0


def test_examples_are_counted_where_they_are(monkeypatch):
    monkeypatch.setattr(evergraph, "Learner", object, raising=False)
    assert examples("Learner") == 0
