"""Commands on providers, offers, costs, images of machines, and on the installation itself."""

from pathlib import Path
from typing import Final

from skyward.commands import reading
from skyward.commands.command import CLOUD, IMAGE, SHELL, Argument, Command, Form, InTerminal
from skyward.commands.option import Option
from skyward.commands.table.pool_commands import JSON
from skyward.commands.table.pool_options import POOL_OPTIONS

__all__ = ["ACCOUNT_COMMANDS"]

_OF_OFFERS = frozenset({"accelerator", "vcpus", "memory_gb", "region", "max_hourly_cost"})
_OF_IMAGES = frozenset(
    {"accelerator", "vcpus", "memory_gb", "disk_gb", "architecture", "region", "max_hourly_cost", "image.python"}
)
_PROVIDERS = Option(
    ("--provider",), "provider", "only these providers, joined by commas", "NAME,...", takes="names of providers"
)
_LIMIT = Option(
    ("--limit",), "limit", "most offers to show; 20 if not given", "N", reading.count, "a positive whole number"
)

OFFERS = Command(
    "offers",
    "show the machines that providers offer, and their prices",
    options=(
        *(each for each in POOL_OPTIONS if each.target in _OF_OFFERS),
        _PROVIDERS,
        Option(("--spot",), "spot", "only spot machines"),
        _LIMIT,
    ),
    forms=(Form((), "insert-offers", "Insert %sky offers", is_line=True),),
    slow=True,
    terminal=InTerminal(
        description="Show the machines that providers offer, in the order in which a pool would try them. Nothing is "
        "bought. Providers without credentials are shown with the prices of the bundled catalogue.",
        options=(JSON,),
        example="--gpu A100:8 --provider aws,runpod --spot",
    ),
)
PROVIDERS = Command(
    "providers",
    "show the installed providers, and whether they find credentials",
    in_notebooks=False,
    options=(JSON,),
    terminal=InTerminal(
        description="Show the installed providers, and whether they find credentials here; `skyward doctor` asks them "
        "what these credentials may do."
    ),
)
PLUGINS = Command("plugins", "show the installed plugins", in_notebooks=False, options=(JSON,))
COSTS = Command(
    "costs",
    "show what the machines of all pools have cost",
    options=(
        Option(("--days",), "days", "days to look back; 7 if not given", "N", reading.number, "a positive number"),
    ),
    forms=(Form((), "insert-costs", "Insert %sky costs", is_line=True),),
    slow=True,
    terminal=InTerminal(
        description="Show the costs of the last days, by pool and kind of machine, from the journal.", options=(JSON,)
    ),
)
DOCTOR = Command(
    "doctor",
    "check this computer, the credentials of clouds, and what they may do",
    arguments=(Argument("providers", CLOUD, several=True),),
    options=(Option(("--policy",), "policy", "show the least permissions that are needed, to paste"),),
    forms=(Form((), "insert-doctor", "Insert %sky doctor", is_line=True),),
    slow=True,
    terminal=InTerminal(
        description="Check what Skyward needs on this computer, and the credentials of all clouds, or of some, with "
        "what they may do. Each problem is shown with its fix. Nothing is created, and nothing costs money.",
        options=(JSON,),
    ),
)
IMAGE_BUILD = Command(
    "image build",
    "rent a machine, set it up, and make an image of it",
    in_notebooks=False,
    options=(
        Option(("--provider",), "provider", "the provider: aws, gcp or container", "NAME", takes="a provider"),
        Option(
            ("--pool",),
            "pool",
            "take the machine and the environment of this pool of skyward.toml",
            "NAME",
            takes="the name of a pool",
        ),
        *(each for each in POOL_OPTIONS if each.target in _OF_IMAGES),
        *(each for each in POOL_OPTIONS if each.target in ("image.pip", "image.apt")),
        Option(
            ("--requirements",),
            "requirements",
            "file with packages to install, one a line",
            "FILE",
            Path,
            "the path of a file",
        ),
        Option(("--rebuild",), "rebuild", "build it although there is such an image"),
    ),
    example="--provider aws --gpu L4 --pip torch,transformers",
    slow=True,
    terminal=InTerminal(
        description="Rent a machine, set it up, make and record an image of it, and terminate it. A pool whose "
        "provider, region and environment match starts its machines from the image, which is faster. Providers bill "
        "images until these are deleted."
    ),
)
IMAGE_LIST = Command("image list", "list the images", in_notebooks=False, options=(JSON,))
IMAGE_DELETE = Command(
    "image delete",
    "delete images at their providers",
    in_notebooks=False,
    arguments=(Argument("ids", IMAGE, required=True, several=True),),
    example="ami-0123",
)
COMPLETION = Command(
    "completion",
    "print the script that completes words after TAB, for a shell",
    in_notebooks=False,
    arguments=(Argument("shell", SHELL, required=True),),
    example="bash >> ~/.bashrc",
)

ACCOUNT_COMMANDS: Final = (
    *(OFFERS, PROVIDERS, PLUGINS, COSTS, DOCTOR, IMAGE_BUILD, IMAGE_LIST, IMAGE_DELETE, COMPLETION),
)
"""The commands, in the order of the help of the command line."""
