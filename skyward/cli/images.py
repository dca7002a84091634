"""`skyward image`: images of machines that pools start from."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from skyward.cli.terminal.answers import say, write_json, write_lines, write_table
from skyward.errors import SpecError

__all__ = ["build", "delete", "list_images"]


def build(
    *,
    provider: str | None = None,
    pool: str | None = None,
    requirements: Path | None = None,
    rebuild: bool = False,
    **options: Any,
) -> int:
    """Build an image, and print its id."""
    from skyward.pool.account.images import build_with

    named = {} if provider is None else {"provider": provider}
    machine = {name: value for name, value in options.items() if not name.startswith("image.")}
    built = build_with(pool, {**named, **machine, **_image(options, requirements, pool)}, say, rebuild=rebuild)
    write_lines([built.id])
    return 0


def _image(options: Mapping[str, Any], requirements: Path | None, pool: str | None) -> dict[str, Any]:
    """Return the field `image`, if an option about it is given."""
    from skyward.specs import Image

    fields = {name.removeprefix("image."): value for name, value in options.items() if name.startswith("image.")}
    if requirements is not None:
        fields["pip"] = [*fields.get("pip", ()), *_requirements(requirements)]
    if fields and pool is not None:
        raise SpecError("Give --pool, or --pip, --requirements, --apt and --python: an image is for one environment.")
    return {"image": Image(**fields)} if fields else {}


def _requirements(file: Path) -> list[str]:
    try:
        lines = [line.partition(" #")[0].strip() for line in file.read_text().splitlines()]
    except OSError as error:
        raise SpecError(f"--requirements {file} cannot be read: {error.strerror}.") from None
    found = [line for line in lines if line and not line.startswith("#")]
    if options := [line for line in found if line.startswith("-")]:
        raise SpecError(f"--requirements {file} has the option {options[0]!r}: only requirements are allowed.")
    return found


def list_images(*, json: bool = False) -> int:
    """Print the images."""
    from skyward.pool.account.images import images
    from skyward.views.images import image_grid

    found = images()
    if json:
        write_json([{**dataclasses.asdict(each), "built": each.built.isoformat()} for each in found])
    elif found:
        write_table(image_grid(found))
    else:
        write_lines(["No images: `skyward image build` makes one."])
    return 0


def delete(*, ids: tuple[str, ...]) -> int:
    """Delete images at their providers."""
    from skyward.pool.account.images import delete_image

    for id in ids:
        say(f"Image {id} was deleted." if delete_image(id) else f"Image {id} was gone already.")
    return 0
