"""What a pool is made of, as frozen values that are checked when they are made. No I/O."""

from skyward.specs.image import Image, PipIndex, SkywardSource, Volume
from skyward.specs.nodes import Executor, Nodes, NodesLike, Worker
from skyward.specs.options import Console, OptionFields, Options, Selection
from skyward.specs.resolve import ComputeFields, resolve
from skyward.specs.spec import Allocation, Architecture, Spec, SpecFields
from skyward.values import FrozenMap

__all__ = [
    "Allocation",
    "Architecture",
    "ComputeFields",
    "Console",
    "Executor",
    "FrozenMap",
    "Image",
    "Nodes",
    "NodesLike",
    "OptionFields",
    "Options",
    "PipIndex",
    "Selection",
    "SkywardSource",
    "Spec",
    "SpecFields",
    "Volume",
    "Worker",
    "resolve",
]
