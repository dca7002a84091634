"""Parts of a pool as frozen values, validated on construction. No I/O.

Names load on first use, because a node needs only the modules about tasks.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from skyward.specs.image import Image, PipIndex, SkywardSource
    from skyward.specs.nodes import Executor, Nodes, NodesLike, Worker
    from skyward.specs.options import Console, OptionFields, Options, Selection
    from skyward.specs.resolve import DEFAULT_GROUP, ComputeFields, GroupsLike, Resolved, resolve_groups
    from skyward.specs.spec import Allocation, Architecture, Spec, SpecFields
    from skyward.specs.storage import Credential, Storage
    from skyward.specs.volume import Volume, VolumeMode
    from skyward.values.needs import NOTHING, Needs, Resources
    from skyward.values.validation import FrozenMap

__all__ = [
    "DEFAULT_GROUP",
    "NOTHING",
    "Allocation",
    "Architecture",
    "ComputeFields",
    "Console",
    "Credential",
    "Executor",
    "FrozenMap",
    "GroupsLike",
    "Image",
    "Needs",
    "Nodes",
    "NodesLike",
    "OptionFields",
    "Options",
    "PipIndex",
    "Resolved",
    "Resources",
    "Selection",
    "SkywardSource",
    "Spec",
    "SpecFields",
    "Storage",
    "Volume",
    "VolumeMode",
    "Worker",
    "resolve_groups",
]

_HOMES = {
    "skyward.specs.image": ("Image", "PipIndex", "SkywardSource"),
    "skyward.values.needs": ("NOTHING", "Needs", "Resources"),
    "skyward.specs.nodes": ("Executor", "Nodes", "NodesLike", "Worker"),
    "skyward.specs.options": ("Console", "OptionFields", "Options", "Selection"),
    "skyward.specs.resolve": (
        "DEFAULT_GROUP",
        "ComputeFields",
        "GroupsLike",
        "Resolved",
        "resolve_groups",
    ),
    "skyward.specs.spec": ("Allocation", "Architecture", "Spec", "SpecFields"),
    "skyward.specs.storage": ("Credential", "Storage"),
    "skyward.specs.volume": ("Volume", "VolumeMode"),
    "skyward.values.validation": ("FrozenMap",),
}
"""Names of each module."""


if not TYPE_CHECKING:  # type checkers would accept any name

    def __getattr__(name: str) -> object:
        from importlib import import_module

        for home, names in _HOMES.items():
            if name in names:
                module = import_module(home)
                globals().update({each: getattr(module, each) for each in names})
                return globals()[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
