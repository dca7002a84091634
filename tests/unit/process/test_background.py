"""The library's loop outlives the code that runs on it."""

import asyncio
import threading

import pytest

from skyward.process.background import new_event_loop, run_on

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("make", [new_event_loop, asyncio.new_event_loop])
@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_loop_continues_after_a_callback_or_a_task_exits(
    make: type[asyncio.AbstractEventLoop], error: type[BaseException]
) -> None:
    loop = make()
    thread = threading.Thread(target=run_on, args=(loop,), daemon=True)
    thread.start()

    def exits() -> None:
        raise error

    async def also_exits() -> None:
        raise error

    async def answers() -> str:
        return "it runs"

    loop.call_soon_threadsafe(exits)
    with pytest.raises(error):
        asyncio.run_coroutine_threadsafe(also_exits(), loop).result(10)
    assert asyncio.run_coroutine_threadsafe(answers(), loop).result(10) == "it runs"
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    assert not thread.is_alive()
    loop.close()
