# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
"""The types of the decorator and of the operators. Checked by mypy and pyright, never run.

The lines that must be refused carry an ignore; the checkers warn where it is not needed.
"""

import asyncio
from collections.abc import AsyncIterator, Generator, Iterable, Iterator
from typing import Any, assert_type

import skyward as sky
from skyward.specs import Needs


@sky.function
def train(epochs: int, rate: float = 0.1) -> float:
    return epochs * rate


@sky.function(timeout=60)
def name() -> str:
    return ""


@sky.function(resources={"GPU": 1}, capabilities={"gpu"})
def heavy(batch: int) -> bytes:
    return bytes(batch)


@sky.function(timeout=5, resources={"CPU": 0.5}, capabilities=["fast"])
def heavy_rows(count: int) -> Iterator[str]:
    yield str(count)


@sky.function
def rows(count: int) -> Iterator[dict[str, int]]:
    yield {"count": count}


@sky.function
def numbers(count: int) -> Generator[int, None, str]:
    yield count
    return ""


@sky.function
def total(data: Iterator[int]) -> int:
    return sum(data)


@sky.function
def anything(value: Any) -> Any:
    return value


@sky.function
async def fetch(url: str) -> bytes:
    return url.encode()


@sky.function(timeout=5)
async def lines(url: str) -> AsyncIterator[str]:
    yield url


class Model:
    @sky.function
    def fit(self, data: list[int]) -> bytes:
        return bytes(data)


@sky.stdout(only="head")
@sky.function
def printed_above(count: int) -> complex:
    return count


@sky.function
@sky.stderr(only=lambda info: info.is_head)
@sky.silent
def printed_below(count: int) -> complex:
    return count


@sky.main
def start(argument: int) -> None: ...


def decorator(model: Model) -> None:
    assert_type(train(10), sky.PendingFunction[float])
    assert_type(train(10, rate=1.0).with_timeout(5), sky.PendingFunction[float])
    assert_type(train.local(10), float)
    assert_type(heavy(1), sky.PendingFunction[bytes])
    assert_type(heavy(1).with_resources(GPU=2), sky.PendingFunction[bytes])
    assert_type(sky.function(train.fn, resources={"CPU": 4}, capabilities={"fast"})(1), sky.PendingFunction[float])
    assert_type(heavy.needs, Needs)
    assert_type(heavy(1).needs, Needs)
    heavy("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    sky.function(resources=["GPU"])  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    sky.function(resources={"GPU": "1"})  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]
    heavy(1).with_resources(GPU="2")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type(train(10).local(), float)
    assert_type(name(), sky.PendingFunction[str])
    assert_type(total(iter([1])), sky.PendingFunction[int])
    assert_type(model.fit([1]), sky.PendingFunction[bytes])
    assert_type(model.fit.local([1]), bytes)
    assert_type(Model.fit(model, [1]), sky.PendingFunction[bytes])
    assert_type(printed_above(1), sky.PendingFunction[complex])
    assert_type(printed_below(1), sky.PendingFunction[complex])
    start(3)
    train("10")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    train.local()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    start("3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def one_call(pool: sky.Compute, model: Model) -> None:
    assert_type(train(10) >> pool, float)
    assert_type(train(10) >> sky, float)
    assert_type(train(10) >> sky.sky, float)
    assert_type(train(10) > pool, sky.TaskFuture[float])
    assert_type(train(10) > sky, sky.TaskFuture[float])
    assert_type(train(10) @ pool, list[float])
    assert_type(model.fit([1]) >> pool, bytes)
    assert_type(rows(3) >> pool, sky.Stream[dict[str, int]])
    assert_type(rows(3) > pool, sky.TaskFuture[sky.Stream[dict[str, int]]])
    assert_type(heavy(3) >> pool, bytes)
    assert_type(heavy_rows(3) >> pool, sky.Stream[str])
    assert_type(numbers(3) >> pool, sky.Stream[int])
    assert_type(anything(3) >> pool, Any)
    assert_type(anything(3) > pool, sky.TaskFuture[Any])
    assert_type(fetch("") >> pool, bytes)
    assert_type(fetch("") > pool, sky.TaskFuture[bytes])
    assert_type(fetch("") @ pool, list[bytes])
    assert_type(lines("") >> pool, sky.Stream[str])
    assert_type(fetch.local(""), bytes)
    assert_type(lines("").local(), Iterator[str])
    _ = train >> pool  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue]
    _ = train(10) >> 3  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue]
    _ = pool >> train(10)  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue]
    _ = train(10) >> name()  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue]


def errors(pool: sky.Compute) -> None:
    try:
        _ = train(10) @ pool
    except sky.NodeErrors as errors:
        assert_type(errors.nodes, tuple[int, ...])
        assert_type(errors.exceptions, tuple[Exception | ExceptionGroup[Exception], ...])


def groups(pool: sky.Compute) -> None:
    assert_type((train(1) & name()) >> pool, tuple[float, str])
    assert_type((train(1) & name() & total(iter([1]))) >> pool, tuple[float, str, int])
    assert_type((train(1) & (name() & rows(1))) >> pool, tuple[float, str, Iterator[dict[str, int]]])
    assert_type(((train(1) & name()) & (name() & train(1))) >> pool, tuple[float, str, str, float])
    assert_type(((train(1) & name()) & (name() & train(1) & name())) >> sky, tuple[float, str, str, float, str])
    assert_type((train(1) & name()) > pool, sky.TaskFuture[tuple[float, str]])
    assert_type((train(1) & name()).with_timeout(3) >> pool, tuple[float, str])
    eight = train(1) & name() & train(1) & name() & train(1) & name() & train(1) & name()
    assert_type(eight >> pool, tuple[float, str, float, str, float, str, float, str])
    for member in eight:
        assert_type(member, sky.PendingFunction[Any])
    _ = train(1) & name() >> pool  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue]
    _ = (train(1) & name()) @ pool  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue]
    _ = train(1) & name  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue]


async def undecorated(url: str) -> bytes:
    return url.encode()


def mapped(pool: sky.Compute) -> None:
    assert_type(pool.map(train, [1, 2]), list[float])
    assert_type(pool.map(str, [1, 2]), list[str])
    assert_type(pool.map(heavy, iter([1])), list[bytes])
    assert_type(pool.map(fetch, [""]), list[bytes])
    assert_type(pool.map(fetch.fn, [""], chunksize=10), list[bytes])
    assert_type(pool.map(undecorated, [""]), list[bytes])
    pool.map(heavy, ["1"])  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType]


def gangs(pool: sky.Compute, tasks: Iterable[sky.PendingFunction[float]], one: sky.PendingFunction[int]) -> None:
    assert_type(sky.gang(one, name()) >> pool, tuple[int, str])
    assert_type(sky.gang(*tasks, placement="strict_pack") >> pool, tuple[float, ...])
    assert_type(sky.gang(one, one) > pool, sky.TaskFuture[tuple[int, int]])
    sky.gang(one, placement="close")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]


def gathered(pool: sky.Compute, tasks: Iterable[sky.PendingFunction[float]]) -> None:
    assert_type(sky.gather(*tasks) >> pool, tuple[float, ...])
    assert_type(sky.gather(*tasks, stream=False) >> pool, tuple[float, ...])
    assert_type(sky.gather(*tasks, stream=True) >> pool, sky.Stream[float])
    assert_type(sky.gather(*tasks, stream=True, ordered=False) >> pool, sky.Stream[float])
    assert_type(sky.gather(*tasks) > pool, sky.TaskFuture[tuple[float, ...]])
    assert_type((sky.gather(*tasks) & name()) >> pool, tuple[*tuple[float, ...], str])
    _ = sky.gather(*tasks, stream=True) > pool  # type: ignore[misc]  # pyright: ignore[reportOperatorIssue]
    sky.gather(tasks)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]


async def awaited(pool: sky.Compute, tasks: Iterable[sky.PendingFunction[float]]) -> None:
    assert_type(await (train(10) > pool), float)
    assert_type(await ((train(1) & name()) > pool), tuple[float, str])
    assert_type([row async for row in rows(3) >> pool], list[dict[str, int]])
    assert_type([row async for row in await (numbers(3) > pool)], list[int])
    assert_type([each async for each in sky.gather(*tasks, stream=True) >> pool], list[float])
    assert_type(await asyncio.gather(train(1) > pool, name() > sky), tuple[float, str])
    assert_type(await asyncio.wrap_future(train(10) > pool), float)


def dependent(pool: sky.Compute) -> None:
    rate = train(10) > pool
    assert_type(anything([rate]) > pool, sky.TaskFuture[Any])
    assert_type(name().after(rate, rows(3) > pool), sky.PendingFunction[str])
    assert_type((name() & train(1)).after(rate) >> pool, tuple[str, float])
    assert_type(train(10).with_retries(2, retry_on=(OSError,)), sky.PendingFunction[float])
    assert_type(sky.function(retries=2, retry_on=OSError)(train.fn)(1), sky.PendingFunction[float])
    assert_type(rate.result(), float)
    train(rate)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # a checker sees the future
    name().after(train(10))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    train(10).with_retries(2, retry_on=int)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def covariant(pending: sky.PendingFunction[bool]) -> sky.PendingFunction[int]:
    return pending
