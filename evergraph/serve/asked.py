"""Predictions that wait for the labels of their nodes, until they are stored with events."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from evergraph.graph.ids import Id

MOST = 10_000  # that wait; then the oldest are dropped


class Asked:
    """What readers have predicted, for the writer to store; may be called from any thread.

    Example:
        >>> asked = Asked()
        >>> asked.remember({"ann": "editor", "bob": "author"}, position=7)
        >>> asked.forgotten(["ann"], position=8)
        >>> asked.remember({"ann": "editor"}, position=7)  # was predicted before ann was forgotten
        >>> asked.take()
        {'bob': 'author'}
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[Id, str] = {}
        self._since = 0  # predictions of an earlier position are too late

    def remember(self, found: Mapping[Id, str], position: int) -> None:
        """Keep what was predicted at a position; the last prediction of a node counts."""
        with self._lock:
            if position >= self._since:
                for node, label in found.items():
                    self._found.pop(node, None)
                    self._found[node] = label
                while len(self._found) > MOST:
                    del self._found[next(iter(self._found))]

    def take(self) -> dict[Id, str]:
        """All that waits; nothing waits any more."""
        with self._lock:
            found, self._found = self._found, {}
        return found

    def give_back(self, found: Mapping[Id, str]) -> None:
        """Let wait again what could not be stored; newer predictions stay."""
        with self._lock:
            self._found = {**found, **self._found}

    def forgotten(self, nodes: list[Id], position: int) -> None:
        """Drop nodes that were forgotten, and what is still to come from before."""
        with self._lock:
            self._since = position
            for node in nodes:
                self._found.pop(node, None)
