"""What must hold whatever comes: errors in the package's own words, and nothing non-finite."""

import linecache
import traceback
from pathlib import Path

import torch

import evergraph
from evergraph.learn.state import contents

PACKAGE = str(Path(evergraph.__file__).parent)
ALLOWED = (ValueError, TypeError, FloatingPointError, FileNotFoundError)


def refusal(action):
    """The error with which an action refuses its input, or None if it does not.

    It must be of an allowed kind and raised by a `raise` of the package: an error that comes out
    of torch, numpy or the standard library as it is tells a user nothing.
    """
    try:
        action()
    except Exception as error:
        found = error
    else:
        return None
    last = traceback.extract_tb(found.__traceback__)[-1]
    line = linecache.getline(last.filename, last.lineno).strip()
    told = f"{type(found).__name__}: {found} (at {last.filename}:{last.lineno}: {line})"
    own = last.filename.startswith(PACKAGE) and line.startswith("raise ")
    assert isinstance(found, ALLOWED), f"a raw error: {told}"
    assert own, f"not in the package's own words: {told}"
    assert str(found), f"no message: {told}"
    return found


def assert_finite(learner):
    """No number of a learner's state is NaN or infinite."""
    tensors, _ = contents(learner)
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and name != "intake.limit":  # where infinity is no limit
            assert bool(tensor.isfinite().all()), f"{name} is not finite"


def assert_finite_output(learner, batch):
    """Predictions are finite numbers."""
    assert bool(torch.as_tensor(learner.output(batch)).isfinite().all()), "outputs are not finite"
