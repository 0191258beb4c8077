"""A client with the verbs of `Model`: safe to repeat, and nothing heavy to import."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any
from urllib.parse import quote, urlsplit

from evergraph.prediction import Explanation, Prediction

Id = str | int
CHUNK = 1000  # events or questions in a request
LATER = (429, 503)  # answers after which a request is sent again


class RefusedEventsError(ValueError):
    """Events that the service has refused; the others were taken.

    Attributes:
        refused: number of the event, counted from 1, and the reason.
        accepted: how many were taken.
    """

    def __init__(self, refused: Sequence[tuple[int, str]], accepted: int) -> None:
        shown = "".join(f"\n  event {line}: {reason}" for line, reason in refused[:20])
        super().__init__(f"{len(refused)} events were refused, {accepted} taken:{shown}")
        self.refused, self.accepted = list(refused), accepted


class Client:
    """A model behind a service.

    Requests that fail on the way, or come when the service is busy or starts again, are repeated;
    every list of events has a key, so that none is learned twice.

    Args:
        url: as `evergraph serve` prints it.
        token: if the service needs one.
        retries: how often a request is repeated.
        timeout: seconds that an answer may take.
        cafile: a certificate to trust, for TLS.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from evergraph.serve.server import Server
        >>> place = TemporaryDirectory()
        >>> with Server(place.name + "/model").background() as url, Client(url) as client:
        ...     old = [{"id": f"o{k}", "age": 60 + k % 9, "label": "old"} for k in range(40)]
        ...     young = [{"id": f"y{k}", "age": 20 + k % 9, "label": "young"} for k in range(40)]
        ...     client.learn({"type": "node", **one} for one in old + young)
        ...     client.learn_one({"id": "ann", "age": 33})
        ...     client.label("ann", "young")["truth"]
        80
        'young'
        >>> place.cleanup()
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        retries: int = 6,
        timeout: float = 60.0,
        cafile: str | None = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"the url must be like http://127.0.0.1:8000, got {url!r}")
        self.retries = retries
        host, port = parts.hostname, parts.port
        self._http: http.client.HTTPConnection
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=cafile)
            self._http = http.client.HTTPSConnection(host, port, timeout=timeout, context=context)
        else:
            self._http = http.client.HTTPConnection(host, port, timeout=timeout)
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def learn(self, events: Iterable[Mapping[str, Any]]) -> int:
        """Send events; returns how many were taken, all durably.

        Raises:
            RefusedEventsError: if some were refused; the others are taken.
        """
        rest, accepted, refused, before = iter(events), 0, list[tuple[int, str]](), 0
        while part := list(islice(rest, CHUNK)):
            body = "".join(json.dumps(dict(event)) + "\n" for event in part).encode()
            answer = self._post("/events", body, "application/x-ndjson", keyed=True)
            accepted += answer["accepted"]
            refused += [(before + one["line"], one["reason"]) for one in answer["refused"]]
            before += len(part)
        if refused:
            raise RefusedEventsError(refused, accepted)
        return accepted

    def learn_one(self, x: Mapping[str, Any], y: str | None = None) -> None:
        """Send one event; a node with its id and features, unless its `type` says other."""
        self.learn([{"type": "node", **x, **({} if y is None else {"label": y})}])

    def label(self, node: Id, label: str) -> dict[str, Any] | None:
        """Send the label of a node.

        Returns:
            What was predicted for it before (`predicted`, `truth`), if it is its first label.
        """
        body = json.dumps({"id": node, "label": label}).encode()
        answer = self._post("/label", body, "application/json", keyed=True)
        if answer["refused"]:
            refused = [(one["line"], one["reason"]) for one in answer["refused"]]
            raise RefusedEventsError(refused, answer["accepted"])
        return next(iter(answer["scored"]), None)

    def forget(
        self,
        nodes: Sequence[Id] = (),
        edges: Sequence[tuple[Id, Id]] = (),
        labels: Sequence[Id] = (),
    ) -> None:
        """Take nodes, edges or labels out with all their traces."""
        events: list[dict[str, Any]] = [{"type": "forget_label", "id": one} for one in labels]
        events += [{"type": "forget_edge", "source": a, "target": b} for a, b in edges]
        self.learn([*events, *({"type": "forget_node", "id": one} for one in nodes)])

    def predict(
        self,
        nodes: Sequence[Id | Mapping[str, Any]],
        edges: Sequence[Mapping[str, Any]] | None = None,
        *,
        coverage: float = 0.9,
    ) -> list[Prediction]:
        """What nodes are: of the graph by their ids, or new ones with features."""
        return [
            Prediction(
                one["id"], one["class"], one["probability"], one["novelty"],
                tuple(one["label_set"]),
            )
            for one in self._asked(nodes, edges, coverage)
        ]  # fmt: skip

    def predict_one(self, x: Id | Mapping[str, Any]) -> str:
        """The class of one node, an id or a dictionary of features."""
        return self.predict([x])[0].label

    def predict_proba_one(self, x: Id | Mapping[str, Any]) -> dict[str, float]:
        """Probabilities of the classes by their names, of one node."""
        found: dict[str, float] = next(self._asked([x], None, 0.9))["probabilities"]
        return found

    def predict_proba(
        self,
        nodes: Sequence[Id | Mapping[str, Any]],
        edges: Sequence[Mapping[str, Any]] | None = None,
    ) -> list[dict[str, float]]:
        """Probabilities of the classes by their names, of each node."""
        return [one["probabilities"] for one in self._asked(nodes, edges, 0.9)]

    def _asked(self, nodes: Sequence[Any], edges: Any, coverage: float) -> Iterator[dict[str, Any]]:
        size = CHUNK if edges is None else max(len(nodes), 1)
        for start in range(0, len(nodes), size):
            part = list(nodes[start : start + size])
            name = "nodes" if isinstance(part[0], Mapping) else "ids"
            question: dict[str, Any] = {name: part, "coverage": coverage}
            if edges is not None:
                question["edges"] = list(edges)
            body = json.dumps(question).encode()
            yield from self._post("/predict", body, "application/json")["predictions"]

    def explain(self, node: Id, label: str | None = None) -> Explanation:
        """Which neighbors and features spoke for a class; of many, the rest is summed as `…`."""
        query = "" if label is None else f"?label={quote(label, safe='')}"
        found = self._request("GET", f"/explain/{quote(str(node), safe='')}{query}")
        near = [(one["id"], one["part"]) for one in found["neighbors"]]
        spoke = [(one["feature"], one["part"]) for one in found["features"]]
        for parts, rest in ((near, "other_neighbors"), (spoke, "other_features")):
            if found[rest]:
                parts.append(("…", found[rest]))
        return Explanation(
            found["id"], found["class"], found["score"], found["bias"], tuple(near), tuple(spoke)
        )

    def node(self, node: Id) -> dict[str, Any]:
        """A node as the service has it: features, label, neighbors."""
        found: dict[str, Any] = self._request("GET", f"/nodes/{quote(str(node), safe='')}")
        return found

    @property
    def classes(self) -> list[str]:
        """The names of the classes, sorted."""
        return sorted(self.inspect()["classes"])

    def digest(self) -> str:
        """A hash of all that decides a prediction."""
        return str(self._request("GET", "/digest")["digest"])

    def inspect(self) -> dict[str, Any]:
        """Counts, classes, accuracy over time, latencies and drift."""
        found: dict[str, Any] = self._request("GET", "/stats")
        return found

    def _post(self, path: str, body: bytes, kind: str, keyed: bool = False) -> dict[str, Any]:
        headers = {"Content-Type": kind}
        if keyed:
            headers["Idempotency-Key"] = uuid.uuid4().hex
        found: dict[str, Any] = self._request("POST", path, body, headers)
        return found

    def _request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] = {}
    ) -> Any:
        """Send a request until it is answered, and read the JSON of the answer."""
        for attempt in range(self.retries + 1):
            pause = min(0.1 * 2**attempt, 5.0)
            try:
                with self._lock:
                    self._http.request(method, path, body, {**self._headers, **headers})
                    answer = self._http.getresponse()
                    text = answer.read()
            except (OSError, http.client.HTTPException) as error:
                self._http.close()
                if attempt == self.retries or isinstance(error, ssl.SSLError):
                    raise ConnectionError(
                        f"{self._http.host}:{self._http.port} does not answer ({error}); is the "
                        "service running?"
                    ) from error
            else:
                if answer.status not in LATER or attempt == self.retries:
                    return _checked(answer.status, text)
                pause = float(answer.getheader("Retry-After") or pause)
            time.sleep(pause)
        raise AssertionError("unreachable")


def _checked(status: int, text: bytes) -> Any:
    """The JSON of an answer; an error if the request was not answered as it was meant."""
    try:
        found = json.loads(text)
    except ValueError:
        found = {"error": text[:200].decode(errors="replace")}
    if status >= 400 and "accepted" not in found:
        raise ValueError(f"{found.get('error', found)} (status {status})")
    return found
