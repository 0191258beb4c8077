"""How much a client may ask for, and how it is refused."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Limits:
    """Bounds on what clients send and on what waits; all must be positive.

    Attributes:
        body: bytes of a request that is one JSON object.
        line: bytes of a line of events.
        block: bytes of events that are read before they are stored.
        refused: lines that are refused before a request is given up.
        nodes: nodes in a question, and edges.
        queue: events that wait for the writer.
        commit: events of one transaction, about.
        pending: questions that wait for an answer.
        streams: readers of /stream.
        connections: at a time, of all kinds.
        classes: that there may be.
        seconds: that a client may take to send something, and that an answer may take.
    """

    body: int = 1 << 22
    line: int = 1 << 20
    block: int = 1 << 18
    refused: int = 10_000
    nodes: int = 1_000
    queue: int = 20_000
    commit: int = 2_000
    pending: int = 64
    streams: int = 32
    connections: int = 256
    classes: int = 1_000
    seconds: float = 30.0

    def __post_init__(self) -> None:
        """Reject what is no bound."""
        for field in fields(self):
            if not getattr(self, field.name) > 0:
                raise ValueError(
                    f"the limit {field.name} must be positive, got {getattr(self, field.name)}"
                )


class RefusedError(Exception):
    """A request that is not answered as it was meant.

    Attributes:
        status: of HTTP.
        reason: the rule, the value and the way out.
        retry: seconds after which it can be tried again, if that helps.
    """

    def __init__(self, status: int, reason: str, retry: float | None = None) -> None:
        super().__init__(reason)
        self.status, self.reason, self.retry = status, reason, retry
