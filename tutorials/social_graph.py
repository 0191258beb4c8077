# %% [markdown]
# # A growing social graph, from CSV to a service
#
# A club has a list of its members and of who meets whom. For some members it is known what they
# are; for the others, and for everybody who joins, the model says it. Needs
# `pip install 'evergraph[serve]'`.

# %%
import csv
import random
import shutil
from pathlib import Path

import evergraph
from evergraph.evaluate.figures import curves
from evergraph.serve.server import Server

OUT = Path("out/social")
shutil.rmtree(OUT, ignore_errors=True)
(OUT / "club").mkdir(parents=True)
draw = random.Random(0)

# %% [markdown]
# ## Two tables
#
# `nodes.csv` has a column `id`, a column `label` where it is known, and any others: numbers,
# words, dates, gaps. `edges.csv` has `source` and `target`. Here they are made up, so that the
# truth is known: age and hobby say something, friends say more.

# %%
KINDS = {"student": (27, "games"), "parent": (38, "garden"), "retired": (55, "bridge")}
HOBBIES = ["games", "garden", "bridge", "music"]
members = {}  # who is what


def join(name, kind):
    """A new member, and whom they meet: mostly others of their kind."""
    age, hobby = KINDS[kind]
    others = [one for one, other in members.items() if other == kind] or list(members)
    friends = [draw.choice(others) for _ in range(3)] if others else []
    if members:
        friends.append(draw.choice(list(members)))
    members[name] = kind
    liked = hobby if draw.random() < 0.5 else draw.choice(HOBBIES)
    person = {"id": name, "age": round(draw.gauss(age, 10)), "hobby": liked}
    return person, [{"source": name, "target": friend} for friend in friends]


rows, edges = [], []
for number in range(150):
    person, met = join(f"m{number}", draw.choice(["student", "parent"]))
    known = number % 3 == 0  # of one in three it is known what they are
    rows.append({**person, "label": members[person["id"]] if known else ""})
    edges += met
for name, table in (("nodes", rows), ("edges", edges)):
    with (OUT / f"club/{name}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, table[0].keys())
        writer.writeheader()
        writer.writerows(table)
print((OUT / "club/nodes.csv").read_text().splitlines()[:4])

# %% [markdown]
# ## A model folder
#
# The same as `evergraph train out/social/club --out out/social/model`. What the columns were
# taken for can be read, and changed.

# %%
with evergraph.Model.train(OUT / "model", OUT / "club/nodes.csv", OUT / "club/edges.csv") as model:
    for line in model.schema.describe():
        print(*line.values())
    unknown = [row["id"] for row in rows if not row["label"]]
    found = model.predict(unknown)
right = sum(one.label == members[one.id] for one in found) / len(found)
print(f"{right:.2f} of {len(found)} members without a label are told right")

# %% [markdown]
# ## A service
#
# `evergraph serve out/social/model` does the same from a shell. New members come as events; each
# is asked for before its label is known, so that the accuracy is honest. After forty of them a
# kind joins that nobody has heard of.

# %%
asked = []  # of each newcomer: the truth, and whether the prediction was right
with Server(OUT / "model").background() as url, evergraph.Client(url) as client:
    start = client.inspect()["position"]
    for number in range(120):
        kinds = ["student", "parent"] if number < 40 else [*KINDS, "retired"]
        person, met = join(f"n{number}", draw.choice(kinds))
        client.learn([{"type": "node", **person}, *({"type": "edge", **one} for one in met)])
        told = client.predict([person["id"]])[0]
        truth = members[person["id"]]
        asked.append((truth, told.label == truth))
        client.label(person["id"], truth)
    print("classes:", client.classes)

    # Why, in parts that sum to the score; and out again, without a trace.
    why = client.explain("n119")
    parts = [f"{name} ({members[name]}) {part:+.2f}" for name, part in why.neighbors[:3]]
    print("n119 is", why.label, "because of", ", ".join(parts))
    before = client.digest()
    client.learn_one({"id": "ann", "age": 70, "hobby": "bridge"})
    client.forget(nodes=["ann"])
    print("ann left no trace:", client.digest() == before)

# %% [markdown]
# ## The past
#
# A model that was served has a history: here it is as it was before the newcomers came
# (`evergraph at out/social/model --offset 0`).

# %%
for model in (
    evergraph.Model.at(OUT / "model", OUT / "then", offset=start),
    evergraph.open(OUT / "model"),
):
    print(len(model.graph), "members, in", model.classes)
    model.close()

# %% [markdown]
# ## A picture
#
# The share of right predictions among the last twenty newcomers, and among those of the new kind:
# wrong for the first ones, which nobody could know, and right soon after.


# %%
def lately(answers, most=20):
    """The mean of the last answers, each as (newcomer, share)."""
    return [
        (number + 1, sum(right for _, right in part) / len(part))
        for number, _ in answers
        for part in [[one[1] for one in answers if number - most < one[0] <= number]]
    ]


numbered = list(enumerate(asked))
lines = {
    "all newcomers": lately(numbered),
    "the new kind": lately([one for one in numbered if one[1][0] == "retired"], most=40),
}
title, up = "Asked before the label was known", "share of right predictions"
curves(lines, "newcomers", title, OUT / "newcomers.png", measure=up)
score = sum(right for _, right in asked) / len(asked)
print(f"right at once: {score:.2f}; picture in {OUT}/newcomers.png")
