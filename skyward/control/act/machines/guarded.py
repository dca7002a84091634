"""Calls of providers, with their errors named: providers are user code on the library's loop, and raise anything."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, Never, cast

from skyward.errors import SkywardError
from skyward.providers import (
    Cluster,
    ImageBuildingProvider,
    Instance,
    Leftover,
    NativeVolumeProvider,
    Offer,
    PoolIdentity,
    Provider,
    ProviderConfig,
    ProviderImage,
    SweepableProvider,
)
from skyward.specs import Spec, Volume
from skyward.values.validation import shown

__all__ = ["GuardedProvider", "ProviderCallError", "guarded"]


class ProviderCallError(Exception):
    """A provider raised an unknown error, or returned a value of another type. Its call may have had an effect."""


class GuardedProvider:
    """A provider whose calls raise a `SkywardError` of its own, or a `ProviderCallError` that names provider and call.

    `SystemExit` and other exceptions that would end the loop or the calling task become errors, too.
    """

    def __init__(self, provider: Provider, name: str) -> None:
        self._provider = provider
        self._name = name

    async def offers(self) -> AsyncIterator[Offer]:
        """Yield the offers of the provider."""
        try:
            async for offer in self._provider.offers():
                yield offer
        except Exception:  # the caller names the provider and what it asked for
            raise
        except BaseException as error:
            if isinstance(error, GeneratorExit) or _is_cancelled(error):
                raise
            self._fail("offers", error)

    async def prepare(self, spec: Spec, offer: Offer, pool: PoolIdentity) -> Cluster:
        """Call `prepare` of the provider."""
        found = await self._call("prepare", lambda: self._provider.prepare(spec, offer, pool))
        return found if isinstance(found, Cluster) else self._refuse("prepare", found, "a Cluster")

    async def attach(self, cluster: Cluster, volumes: Sequence[Volume]) -> Cluster:
        """Call `attach` of the provider."""
        provider = self._provider
        assert isinstance(provider, NativeVolumeProvider)
        found = await self._call("attach", lambda: provider.attach(cluster, volumes))
        return found if isinstance(found, Cluster) else self._refuse("attach", found, "a Cluster")

    async def provision(self, cluster: Cluster, count: int) -> tuple[Cluster, Sequence[Instance]]:
        """Call `provision` of the provider."""
        match await self._call("provision", lambda: self._provider.provision(cluster, count)):
            case (Cluster() as after, [*found]) if all(isinstance(each, Instance) for each in found):
                return after, cast("list[Instance]", found)
            case other:
                self._refuse("provision", other, "(Cluster, instances)")

    async def get_instance(self, cluster: Cluster, instance_id: str) -> tuple[Cluster, Instance | None]:
        """Call `get_instance` of the provider."""
        match await self._call("get_instance", lambda: self._provider.get_instance(cluster, instance_id)):
            case (Cluster() as after, (Instance() | None) as found):
                return after, found
            case other:
                self._refuse("get_instance", other, "(Cluster, Instance or None)")

    async def find(self, cluster: Cluster) -> Sequence[Instance]:
        """Call `find` of the provider."""
        match await self._call("find", lambda: self._provider.find(cluster)):
            case [*found] if all(isinstance(each, Instance) for each in found):
                return cast("list[Instance]", found)
            case other:
                self._refuse("find", other, "instances")

    async def terminate(self, cluster: Cluster, instance_ids: Sequence[str]) -> None:
        """Call `terminate` of the provider."""
        await self._call("terminate", lambda: self._provider.terminate(cluster, instance_ids))

    async def teardown(self, cluster: Cluster) -> None:
        """Call `teardown` of the provider."""
        await self._call("teardown", lambda: self._provider.teardown(cluster))

    async def leftovers(self, owner: str) -> Sequence[Leftover]:
        """Call `leftovers` of the provider; return nothing if it has no such operation."""
        provider = self._provider
        if not isinstance(provider, SweepableProvider):
            return ()
        match await self._call("leftovers", lambda: provider.leftovers(owner)):
            case [*found] if all(isinstance(each, Leftover) for each in found):
                return cast("list[Leftover]", found)
            case other:
                self._refuse("leftovers", other, "leftovers")

    async def remove(self, leftover: Leftover) -> None:
        """Call `remove` of the provider."""
        provider = self._provider
        assert isinstance(provider, SweepableProvider)
        await self._call("remove", lambda: provider.remove(leftover))

    @property
    def builds_images(self) -> bool:
        """True if the provider can make images of machines."""
        return isinstance(self._provider, ImageBuildingProvider)

    @property
    def _images(self) -> ImageBuildingProvider:
        assert isinstance(self._provider, ImageBuildingProvider)
        return self._provider

    async def image_scope(self, spec: Spec, offer: Offer) -> str:
        """Call `image_scope` of the provider."""
        found = await self._call("image_scope", lambda: self._images.image_scope(spec, offer))
        return found if isinstance(found, str) else self._refuse("image_scope", found, "a text")

    async def make_image(self, cluster: Cluster, instance_id: str, name: str) -> ProviderImage:
        """Call `make_image` of the provider."""
        found = await self._call("make_image", lambda: self._images.make_image(cluster, instance_id, name))
        return found if isinstance(found, ProviderImage) else self._refuse("make_image", found, "a ProviderImage")

    async def find_images(self, cluster: Cluster) -> Sequence[ProviderImage]:
        """Call `find_images` of the provider; return nothing if it makes no images."""
        if not self.builds_images:
            return ()
        match await self._call("find_images", lambda: self._images.find_images(cluster)):
            case [*found] if all(isinstance(each, ProviderImage) for each in found):
                return cast("list[ProviderImage]", found)
            case other:
                self._refuse("find_images", other, "images")

    async def image_exists(self, image: ProviderImage) -> bool:
        """Call `image_exists` of the provider."""
        found = await self._call("image_exists", lambda: self._images.image_exists(image))
        return found if isinstance(found, bool) else self._refuse("image_exists", found, "True or False")

    async def delete_image(self, image: ProviderImage) -> None:
        """Call `delete_image` of the provider."""
        await self._call("delete_image", lambda: self._images.delete_image(image))

    async def _call(self, name: str, call: Callable[[], Coroutine[Any, Any, object]]) -> object:
        try:
            return await call()
        except SkywardError:
            raise
        except BaseException as error:
            if _is_cancelled(error):
                raise
            self._fail(name, error)

    def _fail(self, call: str, error: BaseException) -> Never:
        said = f": {error}" if str(error) else ""
        raised = f"provider {self._name!r} raised {type(error).__name__} in {call}(){said}"
        raise ProviderCallError(raised) from error

    def _refuse(self, call: str, value: object, expected: str) -> Never:
        raise ProviderCallError(
            f"{call}() of provider {self._name!r} must return {expected}, but returned {shown(value)}"
        )


def guarded(config: ProviderConfig) -> Provider:
    """Return a new provider with these settings, guarded.

    Raises:
        SkywardError: it could not be created, by its own account.
        ProviderCallError: it could not be created.
    """
    try:
        return GuardedProvider(config.create_provider(), config.name)
    except Exception:  # the caller names the provider
        raise
    except BaseException as error:
        raise ProviderCallError(f"it raised {type(error).__name__} in create_provider(): {error}") from error


def _is_cancelled(error: BaseException) -> bool:
    """Return whether an error is the cancellation of the current task, and not one that a provider raised."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
