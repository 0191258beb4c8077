"""From two CSV files to a service that learns: predict, add a class, explain, forget."""

import random
from pathlib import Path
from tempfile import TemporaryDirectory

import evergraph
from evergraph.serve.server import Server

RNG = random.Random(0)
AGES = {"student": 21, "parent": 38, "retired": 70}


def person(name: str, kind: str) -> dict[str, object]:
    """A row of the table of people."""
    hobby = {"student": "games", "parent": "garden", "retired": "bridge"}[kind]
    if RNG.random() < 0.2:
        hobby = "music"
    return {"id": name, "age": round(RNG.gauss(AGES[kind], 6)), "hobby": hobby, "label": kind}


def write(folder: Path) -> None:
    """Two tables, as a spreadsheet would export them."""
    people = [person(f"p{k}", RNG.choice(["student", "parent"])) for k in range(200)]
    lines = ["id,age,hobby,label", *(",".join(map(str, row.values())) for row in people)]
    (folder / "nodes.csv").write_text("\n".join(lines) + "\n")
    friends = ["source,target"]
    for kind in ("student", "parent"):
        mine = [row["id"] for row in people if row["label"] == kind]
        friends += [f"{RNG.choice(mine)},{RNG.choice(mine)}" for _ in range(300)]
    (folder / "edges.csv").write_text("\n".join(friends) + "\n")


if __name__ == "__main__":
    with TemporaryDirectory() as place:
        folder = Path(place)
        write(folder)
        tables = folder / "nodes.csv", folder / "edges.csv"
        evergraph.Model.train(folder / "model", *tables).close()
        with Server(folder / "model").background() as url, evergraph.Client(url) as client:
            newcomers = [person(f"r{k}", "retired") for k in range(40)]
            client.learn({"type": "node", **row} for row in newcomers)  # a class nobody knew
            before = client.digest()
            client.learn_one({"id": "ann", "age": 69, "hobby": "bridge"})
            client.forget(nodes=["ann"])
            print("ann left no trace:", client.digest() == before)
        with evergraph.open(folder / "model") as model:
            asked = [person(f"q {kind} {k}", kind) for kind in AGES for k in range(20)]
            rows = [{k: row[k] for k in ("id", "age", "hobby")} for row in asked]
            found = model.predict(rows)
            right = [one.label == row["label"] for one, row in zip(found, asked, strict=True)]
            score = sum(right) / len(right)
            print(f"accuracy {score:.2f} on {len(right)} new people, classes {model.classes}")
