"""Random histories of a graph of people: what comes, changes and goes, good and bad."""

import numpy as np


def history(seed, count, size=240, fresh="q"):
    """Events, some of which are refused: deletions of what is not there, bad weights and cells."""
    rng = np.random.default_rng(seed)

    def node():
        name = ("p", fresh)[int(rng.integers(0, 2))]
        return f"{name}{rng.integers(0, size if name == 'p' else 40)}"

    def cells():
        age = "no number" if rng.random() < 0.02 else round(float(rng.normal(40, 12)), 1)
        return {"age": age, "country": str(rng.choice(["de", "fr", "it"]))}

    label = lambda: str(rng.choice(["young", "old"]))  # noqa: E731
    for _ in range(count):
        kind = rng.choice(9, p=[0.2, 0.3, 0.15, 0.08, 0.1, 0.05, 0.04, 0.04, 0.04])
        if kind == 0:
            more = {"label": label()} if rng.random() < 0.5 else {}
            yield {"type": "node", "id": node(), **cells(), **more}
        elif kind == 1:
            yield {"type": "edge", "source": node(), "target": node()}
        elif kind == 2:
            yield {"type": "label", "id": node(), "label": label()}
        elif kind == 3:
            yield {"type": "delete_node", "id": node()}
        elif kind == 4:
            yield {"type": "delete_edge", "source": node(), "target": node()}
        elif kind == 5:
            yield {"type": "delete_label", "id": node()}
        elif kind == 6:
            weight = float(rng.choice([-1, 0, 0.5, 3]))
            yield {"type": "edge", "source": node(), "target": node(), "weight": weight}
        elif kind == 7:
            yield {"type": "forget_node", "id": node()}
        else:
            one = node()
            yield {"type": "edge", "source": one, "target": one}


def batches(events, rng):
    """Events in batches of any size."""
    events = list(events)
    while events:
        size = int(rng.integers(1, 40))
        yield events[:size]
        events = events[size:]
