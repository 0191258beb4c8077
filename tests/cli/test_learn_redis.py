"""Events from a stream of Redis, with a real server."""

import json
import random

import kill_learn
import kill_redis
import pytest
import typer.testing

from evergraph.cli import app
from evergraph.datasets.redis_stream import RedisStream

needs_server = pytest.mark.skipif(kill_redis.SERVER is None, reason=kill_redis.INSTALL)


def learn(*arguments, code=0):
    done = typer.testing.CliRunner().invoke(app, ["learn", *map(str, arguments), "--json"])
    assert done.exit_code == code, done.output
    return json.loads(done.stdout) if code < 2 else done.output


@needs_server
def test_a_reader_that_is_killed_learns_each_event_once(tmp_path):
    assert kill_redis.trials(tmp_path, 2, 1500, 50, random.Random(3)) == []


@needs_server
@pytest.mark.slow
def test_ten_kills_in_100000_events_lose_and_repeat_nothing(tmp_path):
    assert kill_redis.trials(tmp_path, 10, 100_000, 1000, random.Random(0)) == []


@needs_server
def test_two_models_and_an_older_copy_read_all_of_a_stream_in_one_group(tmp_path):
    import shutil

    model, path = kill_learn.prepare(tmp_path, 300)
    lines = path.read_text().splitlines()
    alone, other, old = (shutil.copytree(model, tmp_path / name) for name in ("a", "b", "c"))
    expected = learn(alone, path)
    with kill_redis.server(tmp_path) as (client, address):
        follow = ("--from", f"{address}/events?group=both", "--wait", 0, "--chunk", 32)
        kill_redis.send(client, "events", lines[:100])
        assert learn(model, *follow)["learned"] == 100
        older = shutil.copytree(model, tmp_path / "older")
        kill_redis.send(client, "events", lines[100:])
        for reader, rest in ((model, 200), (other, 300), (older, 200), (old, 300)):
            found = learn(reader, *follow)
            assert (found["learned"], found["digest"]) == (rest, expected["digest"])
            assert learn(reader, *follow)["learned"] == 0
        (group,) = client.xinfo_groups("events")
        assert (group["pending"], group["lag"]) == (0, 0)


@needs_server
def test_entries_that_are_no_events_are_refused_and_not_read_again(tmp_path):
    model, _ = kill_learn.prepare(tmp_path, 1)
    with kill_redis.server(tmp_path) as (client, address):
        follow = ("--from", f"{address}/events", "--wait", 0)
        bad = ({"event": "{"}, {"line": "{}"}, {"event": '{"type": "soon"}'}, {"event": b"\xff"})
        for fields in bad:
            client.xadd("events", fields)
        kill_redis.send(client, "events", ['{"type": "node", "id": "new", "age": 4}'])
        found = learn(model, *follow, code=1)
        assert (found["learned"], found["refused"]) == (1, 4)
        assert [one["line"] for one in found["problems"]] == [1, 2, 3, 4]
        assert learn(model, *follow)["refused"] == 0
        kill_redis.send(client, "events", ['{"type": "node", "id": "n2", "age": 4}'] * 3)
        client.xtrim("events", maxlen=1, approximate=False)
        found = learn(model, *follow, code=1)
        assert found["learned"] == 1
        assert "2 that were removed before" in found["problems"][0]["value"]
        client.delete("events")
        client.xadd("events", {"event": "{}"}, id="1-1")
        assert "it is another stream" in learn(model, *follow, code=2)


def test_what_is_no_stream_is_refused_without_its_password(tmp_path):
    for url in ("http://h/s", "redis://h", "redis:///s", "redis://h/s?db=x", "redis://h/s?no=1"):
        with pytest.raises(ValueError, match="a stream must be like redis://"):
            RedisStream(url)
    with pytest.raises(ValueError, match="got 'redis://:…@h'"):
        RedisStream("redis://:secret@h")
    assert RedisStream("rediss://me:secret@h/a%20b").name == "rediss://h:6379/a b"
    model, path = kill_learn.prepare(tmp_path, 1)
    assert "cannot be read" in learn(model, "--from", "redis://127.0.0.1:1/s", code=2)
    assert "give one of them" in learn(model, code=2)
    assert "give one of them" in learn(model, path, "--from", "redis://h/s", code=2)
