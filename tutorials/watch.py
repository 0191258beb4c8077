# %% [markdown]
# # Activities from a watch
#
# A watch measures acceleration and rotation fifty times a second. A few labeled recordings teach
# it what its owner does; later ones add an activity, and what it never learned it calls unknown.
# The same steps are the commands `evergraph action train`, `predict` and `learn`.

# %%
import csv
from pathlib import Path

import numpy as np

from evergraph.apps.action.online import draw, follow
from evergraph.apps.action.recognizer import Recognizer
from evergraph.apps.action.sources import read_folder
from evergraph.apps.action.splits import divide
from evergraph.apps.action.teaching import RecognizerConfig

OUT = Path("out/watch")
RATE = 50  # samples a second
rng = np.random.default_rng(0)

# %% [markdown]
# ## Recordings
#
# No watch is at hand, so the signals are made up: an activity is a posture of the wrist, a rhythm
# in steps a second, and how strongly the arm swings. People differ in all of them.

# %%
ACTIVITIES = {
    "sitting": ((0.0, 0.3, 9.8), 0.3, 0.2),
    "walking": ((9.0, 2.0, 3.0), 1.8, 2.5),
    "running": ((7.0, 6.0, 3.0), 2.8, 9.0),
    "rowing": ((2.0, 9.0, 3.0), 0.5, 6.0),
}
COLUMNS = [f"{sensor}.{axis}" for sensor in ("acceleration", "rotation") for axis in "xyz"]
PEOPLE = {name: rng.normal(1, 0.06, 3) for name in ("ann", "bob", "cleo", "dan")}


def signals(activity, person, seconds):
    """Samples of all columns, `(T, 6)`."""
    posture, rhythm, swing = ACTIVITIES[activity]
    wrist, tempo, strength = PEOPLE[person]
    phase = 2 * np.pi * (rhythm * tempo * np.arange(seconds * RATE) / RATE + rng.random())
    waves = np.stack([np.sin(phase), np.cos(phase), np.sin(2 * phase)], axis=1)
    acceleration = np.array(posture) * wrist + swing * strength * waves
    rotation = 0.4 * swing * rhythm * np.roll(waves, 1, axis=1)
    both = np.concatenate([acceleration, rotation], axis=1)
    return both + rng.normal(0, 0.4, both.shape)


def record(folder, parts, person, name):
    """A CSV file as a logger writes it: time, signals, and what was done."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["time", *COLUMNS, "activity", "subject"])
        row = 0
        for activity, seconds in parts:
            for values in signals(activity, person, seconds):
                writer.writerow([row / RATE, *values.round(3), activity, person])
                row += 1


for person in ("ann", "bob", "cleo"):
    for activity in ("sitting", "walking", "running"):
        record(OUT / "recordings", [(activity, 40)], person, f"{activity}-{person}")
print((OUT / "recordings/walking-ann.csv").read_text().splitlines()[:2])

# %% [markdown]
# ## The first lesson
#
# A window of two seconds is a small graph: its nodes are the sensors at two instants, and every
# node has the other ones around it. Cleo is held back: how well is a new person recognized?

# %%
data = read_folder(OUT / "recordings")
training, testing = divide(data, "none", leave_out="cleo")
recognizer = Recognizer(data.layout, data.activities, RecognizerConfig(seed=0))
recognizer.learn(training.recordings)
recognizer.calibration = recognizer.calibrated(testing.recordings)  # what is usual, what is new
score = recognizer.evaluate(testing.recordings)
print(f"accuracy on {score.windows} windows of Cleo: {score.accuracy:.2f}")

# %% [markdown]
# ## A day of a fourth person
#
# `follow` predicts as samples come; from a pipe it does the same. Rowing was never learned: most
# of its windows are farther from all that is known than 99 % of the usual ones.

# %%
DAY = [("sitting", 20), ("walking", 20), ("rowing", 20), ("running", 20), ("sitting", 20)]
record(OUT / "day", DAY, "dan", "dan")


def seen(recognizer):
    """Predictions of Dan's day, and how many of them are right."""
    day = OUT / "day/dan.csv"
    made = [one for one, _ in follow(recognizer, day, "dan.csv", 25, unknown=0.99)]
    ends = np.cumsum([seconds for _, seconds in DAY])
    true = [DAY[np.searchsorted(ends, one.time + 1, side="right")][0] for one in made]
    right = [one.activity == name for one, name in zip(made, true, strict=True)]
    rowed = [one.activity for one, name in zip(made, true, strict=True) if name == "rowing"]
    return made, float(np.mean(right)), {name: rowed.count(name) for name in sorted(set(rowed))}


before, share, rowed = seen(recognizer)
print(f"right: {share:.2f}; windows of rowing were taken for {rowed}")

# %% [markdown]
# ## A new activity from one recording
#
# Bob rows for half a minute. The recognizer replays windows from its own memory while it learns
# them, so that no old file is needed; if the old activities suffered, it would refuse.

# %%
record(OUT / "lesson", [("rowing", 30)], "bob", "rowing-bob")
lesson = recognizer.learn(read_folder(OUT / "lesson", layout=recognizer.layout).recordings)
after, score, rowed = seen(recognizer)
print(f"right: {score:.2f}; windows of rowing were taken for {rowed}")
print("recall of old windows, before:", lesson.before.recall, "after:", lesson.after.recall)

# %% [markdown]
# ## A picture, and a folder
#
# Windows that hold two activities belong to none, and are called unknown. The folder goes on with
# `evergraph action predict out/watch/model` and `learn`.

# %%
draw(after, str(OUT / "day/dan.csv"), recognizer, 25, OUT / "day.png")
recognizer.save(OUT / "model")
print(f"picture in {OUT}/day.png, model in {OUT}/model")
