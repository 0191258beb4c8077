"""Outliers in raw samples: values absurdly far from what a sensor channel measured before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

import torch

from evergraph.apps.action.recording import Layout, Recording
from evergraph.checks import check_one_of
from evergraph.learn.gate import BINS, Gate, Outliers

ROWS = 50_000  # samples that the first range of a channel is estimated from


class ChannelGate:
    """A `Gate` with a column per sensor channel, see there for what an outlier is.

    The first recordings set the range of every channel, all activities together; later ones are
    judged one by one, because a new activity may well be livelier than all before.
    """

    def __init__(self) -> None:
        self._gate = Gate("clip")

    def __call__(
        self, recordings: Sequence[Recording], layout: Layout, rule: Outliers = "clip"
    ) -> tuple[list[Recording], int]:
        """The recordings as they may be learned, and how many of their values were clipped."""
        check_one_of("outliers", rule, get_args(Outliers))
        if rule == "pass":
            return list(recordings), 0
        columns = [torch.from_numpy(r.samples.reshape(len(r), -1)) for r in recordings]
        first = not len(self._gate.counts)
        if first:
            step = -(-sum(map(len, columns)) // ROWS)
            self._gate(torch.cat([values[::step] for values in columns]))
        before, passed = self._gate.clipped, []
        for recording, values in zip(recordings, columns, strict=True):
            kept = self._gate(*((values[:0], values) if first else (values,)))[-1]
            changed = (kept != values).nonzero()
            if len(changed) and rule == "refuse":
                row, column = changed[0].tolist()
                raise ValueError(
                    f"{layout.columns[column]} of {recording.name or 'a recording'} must be at "
                    f"most {kept[row, column].abs():g} in size, by what came before, got "
                    f"{values[row, column]:g} at {recording.start + row / layout.rate:g} s; "
                    "correct it, or use --outliers clip or pass"
                )
            samples = kept.numpy().reshape(recording.samples.shape)
            passed.append(replace(recording, samples=samples) if len(changed) else recording)
        return passed, self._gate.clipped - before

    def state(self) -> dict[str, Any]:
        """What it knows, for JSON."""
        tensors, values = self._gate.state()
        return {**values, **{name: tensor.tolist() for name, tensor in tensors.items()}}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue with what another one knew."""
        limit = torch.tensor(state["limit"], dtype=torch.float64)
        counts = torch.tensor(state["counts"], dtype=torch.int64).reshape(len(limit), BINS)
        self._gate.load_state({"counts": counts, "limit": limit}, state)
