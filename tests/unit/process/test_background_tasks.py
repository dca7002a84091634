"""Background tasks are kept while they run, and are cancelled together."""

import asyncio
import gc

import pytest

from skyward.process.background_tasks import BackgroundTasks

pytestmark = pytest.mark.unit


def test_task_is_kept_until_it_is_done() -> None:
    async def main() -> None:
        tasks, go = BackgroundTasks(), asyncio.Event()
        task = tasks.spawn(go.wait())
        gc.collect()
        assert list(tasks) == [task]
        go.set()
        await task
        assert not tasks

    asyncio.run(main())


def test_failed_task_does_not_end_the_others() -> None:
    async def fail() -> None:
        raise ValueError("of its own")

    async def main() -> None:
        tasks, go = BackgroundTasks(), asyncio.Event()
        failed, other = tasks.spawn(fail()), tasks.spawn(go.wait())
        with pytest.raises(ValueError, match="of its own"):
            await failed
        assert not other.done()
        go.set()
        await other

    asyncio.run(main())


def test_cancel_waits_for_all_and_drops_their_errors() -> None:
    ended: list[str] = []

    async def stubborn() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0)
            ended.append("cleaned up")
            raise ValueError("of its own")

    async def main() -> None:
        tasks = BackgroundTasks()
        tasks.spawn(stubborn())
        await asyncio.sleep(0)
        await tasks.cancel()
        assert ended == ["cleaned up"]
        assert not tasks
        await tasks.cancel()

    asyncio.run(main())
