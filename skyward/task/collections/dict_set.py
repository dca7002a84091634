"""`sky.dict` and `sky.set`."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NoReturn

from skyward.task.collections.base import Collection, packed, unpacked
from skyward.task.collections.keys import key_bytes

__all__ = ["Dict", "Set"]

_MISSING: Final = object()


class Dict(Collection):
    """A dict that the nodes of a pool and the client share. Keys are stored independently and have no order.

    With "strong" consistency, the default, a write returns once most of the key's copies have it (up to three, each on
    another node): it survives the loss of one of three nodes. With "eventual", it returns once one copy has it: this is
    faster, and the last writes to a node may be lost with the node. Writes to one key are serialized; every later read
    sees them. `pop` returns a value to one caller only. While a node is being lost, operations on the keys that it
    stored wait a few seconds; on a pool of one or two nodes, they wait for its replacement.

    It cannot be listed: it has no length and no iteration over its keys. None is a valid value. Keys are as in a
    Python dict: hashable, and 1, 1.0 and True are one key.

    Example:
        >>> results = pool.dict("losses")
        >>> results["first"] = 0.5
        >>> results.get("second", 0.0)
    """

    kind = "dict"

    def __getitem__(self, key: object) -> Any:
        """Return the value of `key`.

        Raises:
            KeyError: `key` has no value.
        """
        if (data := self._ask("get", key_bytes(key))) is None:
            raise KeyError(key)
        return unpacked(data)

    def __setitem__(self, key: object, value: object) -> None:
        self._ask("put", key_bytes(key), self._packed(key, value))

    def __delitem__(self, key: object) -> None:
        if self._ask("take", key_bytes(key)) is None:
            raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return bool(self._ask("has", key_bytes(key)))

    def __iter__(self) -> NoReturn:
        self._refuse_listing()

    def __len__(self) -> NoReturn:
        self._refuse_listing()

    def __bool__(self) -> bool:
        """True, with or without keys, because the handle is not None."""
        return True

    def keys(self) -> NoReturn:
        """Raise TypeError: the keys cannot be listed."""
        self._refuse_listing()

    def values(self) -> NoReturn:
        """Raise TypeError: the values cannot be listed."""
        self._refuse_listing()

    def items(self) -> NoReturn:
        """Raise TypeError: the items cannot be listed."""
        self._refuse_listing()

    def _refuse_listing(self) -> NoReturn:
        raise TypeError(
            f"{self!r} has no length and cannot be listed: its keys are stored independently. Keep a list of them "
            "where you need one, and get the values with `get`."
        )

    def get(self, key: object, default: Any = None) -> Any:
        """Return the value of `key`, or `default`."""
        data = self._ask("get", key_bytes(key))
        return default if data is None else unpacked(data)

    def update(self, values: Mapping[Any, Any] | Iterable[tuple[Any, Any]] = (), /, **named: Any) -> None:
        """Set the values of many keys, in batches. Each key is written independently."""
        self._ask("update", self._all_packed(values, named))

    def pop(self, key: object, default: Any = _MISSING) -> Any:
        """Remove `key`. Return its value, or `default`.

        Raises:
            KeyError: `key` has no value, and there is no default.
        """
        return self._popped(key, self._ask("take", key_bytes(key)), default)

    async def get_async(self, key: object, default: Any = None) -> Any:
        """Form of `get` for coroutines."""
        data = await self._ask_async("get", key_bytes(key))
        return default if data is None else unpacked(data)

    async def set_async(self, key: object, value: object) -> None:
        """Set the value of `key`."""
        await self._ask_async("put", key_bytes(key), self._packed(key, value))

    async def delete_async(self, key: object) -> None:
        """Remove `key`.

        Raises:
            KeyError: it has no value.
        """
        self._popped(key, await self._ask_async("take", key_bytes(key)), _MISSING)

    async def contains_async(self, key: object) -> bool:
        """Return whether `key` has a value."""
        return bool(await self._ask_async("has", key_bytes(key)))

    async def update_async(self, values: Mapping[Any, Any] | Iterable[tuple[Any, Any]] = (), /, **named: Any) -> None:
        """Form of `update` for coroutines."""
        await self._ask_async("update", self._all_packed(values, named))

    async def pop_async(self, key: object, default: Any = _MISSING) -> Any:
        """Form of `pop` for coroutines."""
        return self._popped(key, await self._ask_async("take", key_bytes(key)), default)

    def _packed(self, key: object, value: object) -> bytes:
        return packed(value, f"{self.name}[{key!r}]")

    def _all_packed(
        self, values: Mapping[Any, Any] | Iterable[tuple[Any, Any]], named: Mapping[str, Any]
    ) -> dict[bytes, bytes]:
        given = {**dict(values), **named}
        return {key_bytes(key): self._packed(key, value) for key, value in given.items()}

    def _popped(self, key: object, data: bytes | None, default: Any) -> Any:
        if data is not None:
            return unpacked(data)
        if default is _MISSING:
            raise KeyError(key)
        return default


class Set(Collection):
    """A set that the nodes of a pool and the client share. Members are hashable, as in a Python set.

    Consistency and the loss of nodes are as for `sky.dict`. It has a length, but its members cannot be listed.

    Example:
        >>> seen = pool.set("urls")
        >>> seen.add("https://example.com")
        >>> "https://example.com" in seen
    """

    kind = "set"

    def add(self, member: object) -> None:
        """Add a member."""
        self._ask("add", key_bytes(member))

    def discard(self, member: object) -> None:
        """Remove a member, if present."""
        self._ask("discard", key_bytes(member))

    def __contains__(self, member: object) -> bool:
        return bool(self._ask("has", key_bytes(member)))

    def __len__(self) -> int:
        return int(self._ask("size"))

    def __iter__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} cannot be listed: its members are stored independently. Ask for each with `in`, or keep a list "
            "of them where you need one."
        )

    def __bool__(self) -> bool:
        """True, with or without members, because the handle is not None. See `len`."""
        return True

    async def add_async(self, member: object) -> None:
        """Add a member."""
        await self._ask_async("add", key_bytes(member))

    async def discard_async(self, member: object) -> None:
        """Remove a member, if present."""
        await self._ask_async("discard", key_bytes(member))

    async def contains_async(self, member: object) -> bool:
        """Return whether `member` is in the set."""
        return bool(await self._ask_async("has", key_bytes(member)))

    async def size_async(self) -> int:
        """Return the number of members."""
        return int(await self._ask_async("size"))
