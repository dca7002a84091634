"""Commands on the objects of buckets, which volumes show on nodes."""

from typing import Final

from skyward.commands.command import FILE, PLACE, Argument, Command, InTerminal
from skyward.commands.option import Option
from skyward.commands.table.pool_commands import JSON, YES

__all__ = ["VOLUME_COMMANDS"]

_PLACE = Argument("place", PLACE, required=True)
_PLACES = (
    "PLACE is `s3://BUCKET/KEY` for the store of AWS, `gs://BUCKET/KEY` for that of Google, or `NAME://BUCKET/KEY` for "
    "a table `[storages.NAME]` of skyward.toml."
)

VOLUME_LS = Command(
    "volume ls",
    "list the objects of a bucket, or of a part of it",
    in_notebooks=False,
    arguments=(_PLACE,),
    options=(JSON,),
    example="s3://datasets/images",
    terminal=InTerminal(description=f"List the objects of a bucket, or those below a key. {_PLACES}"),
)
VOLUME_PUT = Command(
    "volume put",
    "upload a file or a folder to a bucket",
    in_notebooks=False,
    arguments=(Argument("path", FILE, required=True), _PLACE),
    example="images s3://datasets/images",
    slow=True,
    terminal=InTerminal(
        description="Upload a file, or a folder with everything below it. A repeated command sends only what is "
        f"missing or has changed. {_PLACES}"
    ),
)
VOLUME_GET = Command(
    "volume get",
    "download an object, or all objects below a key",
    in_notebooks=False,
    arguments=(_PLACE, Argument("path", FILE)),
    example="s3://datasets/images images",
    slow=True,
    terminal=InTerminal(
        description="Download an object, or all objects below a key, to a path; to the last part of the key, here, if "
        f"there is none. A repeated command fetches only what is missing or has changed. {_PLACES}"
    ),
)
VOLUME_RM = Command(
    "volume rm",
    "delete an object, or with --recursive all objects below a key",
    in_notebooks=False,
    arguments=(_PLACE,),
    options=(Option(("-r", "--recursive"), "recursive", "delete all objects below the key"), YES),
    example="s3://datasets/images -r -y",
    terminal=InTerminal(description=f"Delete an object, or all objects below a key. {_PLACES}"),
)

VOLUME_COMMANDS: Final = (VOLUME_LS, VOLUME_PUT, VOLUME_GET, VOLUME_RM)
"""The commands."""
