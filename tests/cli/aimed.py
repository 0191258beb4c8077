"""Train, learn, forget and refit, disturbed at every system call that changes a model's file."""

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kill_learn
import traced

HOW = ("kill", "tear", "power", "full", "broken")
CHUNK = 20
SECRET = "qqsecretqq"


class Job:
    """A command on a copy of a model folder, and what must be true after it was disturbed.

    Args:
        scratch: a folder for this job.
        name: train, learn, forget or refit.
    """

    def __init__(self, scratch: Path, name: str) -> None:
        self.scratch, self.name = scratch, name
        scratch.mkdir()
        model, self.events = kill_learn.prepare(scratch, 60)
        (scratch / "data").mkdir()
        rows = [f"{k},{k % 7 * 10},{'xy'[k % 2]}\n" for k in range(40)]
        (scratch / "data" / "nodes.csv").write_text("".join(["id,age,label\n", *rows]))
        self.start = scratch / "start"
        self.place = scratch / "place"
        self.expected: list[tuple[str, int]] = []
        before = {"forget": _guests(scratch), "refit": self.events}.get(name)
        if before is not None:
            _work(lambda: kill_learn.learn(model, before), scratch / "said")
        if name != "train":
            model.rename(self.start)
        self._alone()

    def run(self) -> None:
        """The command, in a process of its own."""
        if self.name == "learn":
            kill_learn.learn(self.place, self.events, CHUNK, self.scratch / "acknowledged")
        elif self.name == "train":
            kill_learn.command("train", str(self.scratch / "data"), "--out", str(self.place))
        elif self.name == "refit":
            kill_learn.command("refit", str(self.place))
        else:
            kill_learn.command("forget", str(self.place), "--node", SECRET)

    def _alone(self) -> None:
        """Run it undisturbed, and note the states between two transactions."""
        self.renew()
        if self.name != "train":
            self.expected.append(kill_learn.look(self.place))
        if self.name == "learn":
            lines = self.events.read_text().splitlines(keepends=True)
            for count in range(CHUNK, len(lines) + 1, CHUNK):
                part = self.scratch / f"{count}.jsonl"
                part.write_text("".join(lines[count - CHUNK : count]))
                _work(lambda part=part: kill_learn.learn(self.place, part, CHUNK), self.said)
                self.expected.append(kill_learn.look(self.place))
        else:
            assert _work(self.run, self.said) == 0, self.said.read_text()
            self.expected.append(kill_learn.look(self.place))
        assert len(set(self.expected)) == len(self.expected)

    @property
    def said(self) -> Path:
        return self.scratch / "said"

    def renew(self) -> None:
        """Put the folder back as it was."""
        shutil.rmtree(self.place, ignore_errors=True)
        (self.scratch / "acknowledged").write_text("0")
        if self.start.exists():
            shutil.copytree(self.start, self.place)

    def disturb(self, at: int, how: str) -> tuple[str | None, list[str]]:
        """Disturb the call of a number; its name, None if there are fewer, and what is wrong."""
        self.renew()
        child = traced.Traced(self.run, self.said, self.place, at, how)
        if len(child.calls) <= at:
            return None, []
        text, wrong = self.said.read_text(), []
        if how in traced.FAILURES:
            told = [line for line in text.splitlines() if line.startswith("Error: ")]
            if child.code not in (0, 2) or "Traceback" in text or len(told) != bool(child.code):
                wrong.append(f"exit code {child.code}: {text[-500:]}")
        elif child.code != -9:
            wrong.append(f"exit code {child.code}: {text[-500:]}")
        try:
            wrong += self.check()
        except Exception as error:
            wrong.append(f"{type(error).__name__}: {error}")
        return child.calls[at], wrong

    def check(self) -> list[str]:
        """What is wrong with the folder that was left, and with the one after another run."""
        wrong = []
        if self.name != "train" or (self.place / "model.json").exists():
            found = kill_learn.look(self.place)
            position = found[1]
            if found not in self.expected:
                wrong.append(f"another state at position {position}")
            if position < int((self.scratch / "acknowledged").read_text().split()[-1]):
                wrong.append(f"acknowledged, but lost: only {position} events are there")
        if (code := _work(self.run, self.said)) and not self._was_done():
            wrong.append(f"exit code {code} afterwards: {self.said.read_text()[-500:]}")
        kill_learn.open_and_close(self.place)
        allowed = kill_learn.ALLOWED | {".unfinished"}
        if left := {file.name for file in self.place.iterdir()} - allowed:
            wrong.append(f"left {sorted(left)}")
        held = [f.name for f in self.place.iterdir() if SECRET.encode() in f.read_bytes()]
        if self.name == "forget" and held:
            wrong.append(f"the forgotten node is still in {held}")
        if kill_learn.look(self.place) != self.expected[-1]:
            wrong.append("another state in the end")
        return wrong

    def _was_done(self) -> bool:
        """Whether the command is refused because it was finished the first time."""
        words = {"train": "is there already", "forget": "has no node"}
        return words.get(self.name, "\0") in self.said.read_text()


def every_call(scratch: Path, name: str, how: str, step: int = 1) -> dict[str, Any]:
    """Disturb a command at every call, or every step-th: which calls it survived, which not."""
    job = Job(scratch / f"{name} {how}", name)
    survived: Counter[str] = Counter()
    failures = []
    at = 0
    while True:
        call, wrong = job.disturb(at, how)
        if call is None:
            break
        if wrong:
            failures.append({"call": at, "name": call, "wrong": wrong})
            print(f"{name}, {how} at call {at}, {call}: {wrong}", flush=True)
        else:
            survived[call] += 1
        at += step
    shutil.rmtree(job.scratch)
    print(f"{name}, {how}: {sum(survived.values())} calls, {len(failures)} failures", flush=True)
    return {"kind": f"{name}: {how}", "outcomes": dict(survived), "failures": failures}


def _work(work: Callable[[], object], said: Path) -> int:
    return traced.end(traced.fork(work, said))


def _guests(folder: Path) -> Path:
    """Events that bring a node that will be forgotten."""
    path = folder / "guests.jsonl"
    path.write_text(
        f'{{"type": "node", "id": "{SECRET}", "age": 31, "label": "c"}}\n'
        f'{{"type": "edge", "source": "{SECRET}", "target": "u7"}}\n'
    )
    return path
