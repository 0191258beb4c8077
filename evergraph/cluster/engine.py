"""Where shards live: in this process, or as actors of Ray."""

from __future__ import annotations

import os
import platform
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

from evergraph import __version__
from evergraph.cluster.shard import Shard
from evergraph.extras import require
from evergraph.model.folder import Settings

PATIENCE = 180  # seconds until a shard must have come back
RELEASE = 10  # seconds until CPUs of what has just ended are free again
LOOPBACK = "127.0.0.1"  # where a cluster that is begun here listens
AHEAD = 4  # loads that are on their way to a shard at a time


class ShardLost(RuntimeError):  # noqa: N818 (it is a state, which is recovered from)
    """The process of a shard has died; it is started again from its store."""


class Engine(Protocol):
    """Calls methods of shards, and carries what they give to each other."""

    shards: int

    def each(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call a method of every shard with arguments of its own."""

    def exchange(self, give: str, take: str, *arguments: Any) -> None:
        """Let every shard give parcels for all, and take those that are for it."""

    def stream(self, method: str, arguments: Iterable[Sequence[tuple[Any, ...]]]) -> None:
        """Call a method of every shard many times, some calls ahead."""

    def revive(self) -> None:
        """Go on with shards that were started again."""

    def close(self) -> None:
        """End the shards."""


class Actor:
    """A shard in a process of its own, which serves only those who know that it began anew."""

    def __init__(self, *arguments: Any) -> None:
        self._arguments, self._token = arguments, uuid4().hex
        self._shard: Shard | None = None

    def token(self) -> str:
        """Open the store; the token tells this process from the one that was killed before it."""
        if self._shard is None:
            self._shard = Shard(*self._arguments)
        return self._token

    def run(self, token: str, method: str, *arguments: Any) -> Any:
        """Call a method of the shard."""
        if token != self._token:
            raise ShardLost("it was started again")
        return attrgetter(method)(self._shard)(*arguments)


class LocalEngine:
    """All shards in this process, for graphs that fit it, and to find mistakes."""

    def __init__(self, folders: Sequence[Path], settings: Settings) -> None:
        self.shards = len(folders)
        self._made = [
            Shard(str(folder), place, self.shards, settings) for place, folder in enumerate(folders)
        ]

    def each(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """See `Engine`."""
        return [
            attrgetter(method)(one)(*args) for one, args in zip(self._made, arguments, strict=True)
        ]

    def exchange(self, give: str, take: str, *arguments: Any) -> None:
        """See `Engine`."""
        parcels = self.each(give, [arguments] * self.shards)
        self.each(take, list(zip(*parcels, strict=True)))

    def stream(self, method: str, arguments: Iterable[Sequence[tuple[Any, ...]]]) -> None:
        """See `Engine`."""
        for each in arguments:
            self.each(method, each)

    def revive(self) -> None:
        """See `Engine`; nothing dies here alone."""

    def close(self) -> None:
        """See `Engine`."""
        for one in self._made:
            one.close()


class RayEngine:
    """Every shard is an actor of Ray, which starts it again from its store if it dies.

    Args:
        folders: of the shards, which every machine can reach that may run one.
        settings: of the model.
        address: of a cluster; None uses the one that this program is connected to, or begins one
            on this machine, which `close` ends again.
        memory: bytes of Ray's object store, if one is begun.
    """

    def __init__(
        self,
        folders: Sequence[Path],
        settings: Settings,
        address: str | None = None,
        memory: int = 200_000_000,
    ) -> None:
        self.shards = len(folders)
        self._ray, self._began = connect(address, self.shards, memory)
        make = self._ray.remote(max_restarts=-1, max_task_retries=0, num_cpus=1)(Actor)
        self._actors: list[Any] = []
        self._tokens: list[str] = []
        try:
            check_room(self._ray, self.shards, "shards")
            self._actors = [
                make.remote(str(folder.resolve()), place, self.shards, settings)
                for place, folder in enumerate(folders)
            ]
            self.revive()
            for found in self.each("about", [()] * self.shards):
                if found["version"] != __version__:
                    raise ValueError(
                        f"all machines must run the same evergraph, got {__version__} here and "
                        f"{found['version']} on a shard: install the same version"
                    )
        except BaseException:
            self.close()
            raise

    def each(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """See `Engine`."""
        return self._wait(self._call(method, arguments))

    def _call(
        self, method: str, arguments: Iterable[tuple[Any, ...]], returns: int = 1
    ) -> list[Any]:
        each = zip(self._actors, self._tokens, arguments, strict=True)
        return [
            actor.run.options(num_returns=returns).remote(token, method, *args)
            for actor, token, args in each
        ]

    def exchange(self, give: str, take: str, *arguments: Any) -> None:
        """See `Engine`; parcels go from shard to shard, not through this process."""
        given = self._call(give, [arguments] * self.shards, self.shards)
        if self.shards == 1:  # Ray takes a list of one for one result
            given = self._wait(given)
        self._wait(self._call(take, list(zip(*given, strict=True))))

    def stream(self, method: str, arguments: Iterable[Sequence[tuple[Any, ...]]]) -> None:
        """See `Engine`."""
        going: list[list[Any]] = []
        try:
            for each in arguments:
                going.append(self._call(method, each))
                if len(going) >= AHEAD:
                    self._wait(going.pop(0))
        finally:
            self._wait([ref for refs in going for ref in refs])

    def _wait(self, refs: Sequence[Any]) -> list[Any]:
        """The results of calls, after all have ended; the first error is raised."""
        errors, results = self._ray.exceptions, []
        failed: BaseException | None = None
        for ref in refs:
            try:
                results.append(self._ray.get(ref))
            except (errors.RayActorError, errors.ObjectLostError) as error:
                failed = failed or ShardLost(f"its process has died: {error}")
            except errors.RayTaskError as error:
                if failed is None or isinstance(failed, ShardLost):
                    failed = error.cause
        if failed is not None:
            raise failed
        return results

    def revive(self) -> None:
        """See `Engine`."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                self._tokens = [self._ray.get(actor.token.remote()) for actor in self._actors]
                return
            except self._ray.exceptions.RayActorError:
                time.sleep(0.2)
            except self._ray.exceptions.RayTaskError as error:
                raise error.cause from None
        raise ConnectionError(f"a shard did not come back in {PATIENCE} s; look at its logs")

    def close(self) -> None:
        """See `Engine`."""
        with suppress(Exception):  # a shard that cannot be asked is ended all the same
            self.each("close", [()] * self.shards)
        if self._began:
            self._ray.shutdown()
        else:
            for actor in self._actors:
                self._ray.kill(actor)


def connect(address: str | None, processes: int, memory: int) -> tuple[Any, bool]:
    """Ray, connected to a cluster, and whether it was begun here."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_worker_niceness", "0")  # shards are what the machine is for
    ray = require("ray", "ray")
    if ray.is_initialized():
        return ray, False
    try:
        if address is not None:
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        else:
            ray.init(
                num_cpus=processes, object_store_memory=memory, include_dashboard=False,
                log_to_driver=False, logging_level="ERROR", _node_ip_address=LOOPBACK,
            )  # fmt: skip
    except Exception as error:  # Ray raises plain ones, if a machine is too busy to begin in time
        where = "on this machine" if address is None else f"at {address}"
        room = shutil.disk_usage("/dev/shm").free if Path("/dev/shm").is_dir() else 0
        raise ConnectionError(
            f"no cluster of Ray could be used {where} ({error}); all machines need Ray "
            f"{ray.__version__} and Python {platform.python_version()}, and this one has "
            f"{room:,} bytes of shared memory"
        ) from error
    return ray, True


def check_room(ray: Any, processes: int, what: str) -> None:
    """Refuse more actors than a cluster has free CPUs for: they would wait for ever."""
    end = time.monotonic() + RELEASE
    while (room := int(ray.available_resources().get("CPU", 0))) < processes:
        if time.monotonic() > end or ray.cluster_resources().get("CPU", 0) < processes:
            raise ValueError(
                f"{what} must be at most as many as the cluster of Ray has free CPUs, got "
                f"{processes} for {room}: ask for fewer, end other work, or add machines"
            )
        time.sleep(0.1)


Opener = Callable[[Sequence[Path], Settings], Engine]
"""Makes an engine for the folders of shards."""
