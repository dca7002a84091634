"""`sky image`: images of machines that pools start from."""

import argparse
import sys
from pathlib import Path
from typing import Any

from skyward.errors import SpecError

__all__ = ["add_image", "run_image"]

_FIELDS = ("provider", "accelerator", "vcpus", "memory_gb", "disk_gb", "architecture", "region", "max_hourly_cost")


def add_image(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add `sky image` to a parser."""
    image = commands.add_parser(
        "image",
        help="build, list and delete images of machines that pools start from",
        description="Images of machines with an environment. A pool whose provider, region and environment match "
        "starts its machines from such an image, which is faster. Providers bill images until these are deleted.",
    )
    actions = image.add_subparsers(dest="action", metavar="ACTION", required=True)
    build = actions.add_parser(
        "build",
        help="rent a machine, set it up, and make an image of it",
        description="Rent a machine, set it up, make and record an image of it, and terminate it.",
        epilog="Example: sky image build --provider aws --gpu L4 --pip torch,transformers",
    )
    build.add_argument("--provider", metavar="NAME", help="the provider: aws, gcp or container")
    build.add_argument(
        "--pool", metavar="NAME", help="take the machine and the environment of this pool of skyward.toml"
    )
    build.add_argument("--gpu", "--accelerator", dest="accelerator", metavar="NAME[:COUNT]", help="the accelerators")
    build.add_argument("--vcpus", metavar="N", type=float, help="minimum number of virtual CPUs")
    build.add_argument("--memory", dest="memory_gb", metavar="GIB", type=float, help="minimum memory")
    build.add_argument("--disk", dest="disk_gb", metavar="GIB", type=float, help="disk, which is the image's size")
    build.add_argument("--arch", dest="architecture", metavar="NAME", help="architecture: x86_64 or arm64")
    build.add_argument("--region", metavar="NAME", help="region, as the provider names it")
    build.add_argument("--max-cost", dest="max_hourly_cost", metavar="USD", type=float, help="maximum price per hour")
    build.add_argument("--pip", metavar="PKG,...", action="append", default=[], help="packages to install; repeatable")
    build.add_argument("--requirements", metavar="FILE", type=Path, help="file with packages to install, one a line")
    build.add_argument("--apt", metavar="PKG,...", action="append", default=[], help="system packages; repeatable")
    build.add_argument("--python", metavar="VERSION", help="version of Python; this one if not given")
    build.add_argument("--rebuild", action="store_true", help="build it although there is such an image")
    actions.add_parser("list", help="list the images")
    delete = actions.add_parser("delete", help="delete images at their providers")
    delete.add_argument("ids", metavar="ID", nargs="+", help="ids of images")


def run_image(given: argparse.Namespace) -> int:
    """Run an action; return the exit status."""
    return {"build": _build, "list": _list, "delete": _delete}[given.action](given)


def _build(given: argparse.Namespace) -> int:
    from skyward.pool.account.images import build_with

    fields = {name: value for name in _FIELDS if (value := getattr(given, name)) is not None}
    built = build_with(given.pool, fields | _image(given), _tell, rebuild=given.rebuild)
    sys.stdout.write(f"{built.id}\n")
    return 0


def _image(given: argparse.Namespace) -> dict[str, Any]:
    """Return the field `image`, if an option about it is given."""
    from skyward.specs import Image

    named = {"pip": [*_words(given.pip), *_requirements(given.requirements)], "apt": _words(given.apt)}
    fields: dict[str, Any] = {name: value for name, value in named.items() if value}
    if given.python is not None:
        fields["python"] = given.python
    if fields and given.pool is not None:
        raise SpecError("Give --pool, or --pip, --requirements, --apt and --python: an image is for one environment.")
    return {"image": Image(**fields)} if fields else {}


def _words(given: list[str]) -> list[str]:
    return [word for each in given for part in each.split(",") if (word := part.strip())]


def _requirements(file: Path | None) -> list[str]:
    if file is None:
        return []
    try:
        lines = [line.partition(" #")[0].strip() for line in file.read_text().splitlines()]
    except OSError as error:
        raise SpecError(f"--requirements {file} cannot be read: {error.strerror}.") from None
    found = [line for line in lines if line and not line.startswith("#")]
    if options := [line for line in found if line.startswith("-")]:
        raise SpecError(f"--requirements {file} has the option {options[0]!r}: only requirements are allowed.")
    return found


def _list(_: argparse.Namespace) -> int:
    from skyward.pool.account.images import images
    from skyward.views.images import image_table

    found = images()
    sys.stdout.write(f"{image_table(found)}\n" if found else "No images: `sky image build` makes one.\n")
    return 0


def _delete(given: argparse.Namespace) -> int:
    from skyward.pool.account.images import delete_image

    for id in given.ids:
        _tell(f"Image {id} was deleted." if delete_image(id) else f"Image {id} was gone already.")
    return 0


def _tell(sentence: str) -> None:
    sys.stderr.write(f"sky image: {sentence}\n")
    sys.stderr.flush()
