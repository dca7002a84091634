"""Plugins: what frameworks need on nodes, and how tasks work together in them.

The factories of the plugins have the names of the frameworks: `sky.plugins.torch()`. Those of other packages are found
by their entry points in the group `skyward.plugins`.
"""

from typing import TYPE_CHECKING

from skyward.specs.plugin import Plugin, PluginStep, Requires
from skyward.task.on_node import Meeting, OnNode, TaskInfo

if TYPE_CHECKING:
    from skyward.plugins.accelerate_plugin import Accelerate as accelerate
    from skyward.plugins.around_plugin import around
    from skyward.plugins.cuml_plugin import Cuml as cuml
    from skyward.plugins.huggingface_plugin import HuggingFace as huggingface
    from skyward.plugins.jax_plugin import Jax as jax
    from skyward.plugins.joblib_plugin import Joblib as joblib
    from skyward.plugins.joblib_plugin import Sklearn as sklearn
    from skyward.plugins.keras_plugin import Keras as keras
    from skyward.plugins.mig_plugin import Mig as mig
    from skyward.plugins.mps_plugin import Mps as mps
    from skyward.plugins.torch_plugin import Torch as torch

__all__ = [
    "Meeting",
    "OnNode",
    "Plugin",
    "PluginStep",
    "Requires",
    "TaskInfo",
    "accelerate",
    "around",
    "cuml",
    "huggingface",
    "jax",
    "joblib",
    "keras",
    "mig",
    "mps",
    "sklearn",
    "torch",
]


if not TYPE_CHECKING:  # type checkers would accept any name

    def __getattr__(name: str) -> object:
        if name == "around":  # a function: it makes the plugin from functions, which no file can name
            from skyward.plugins.around_plugin import around

            return around
        from skyward.plugins.registry import find_plugin, plugin_names

        if name in plugin_names():
            return find_plugin(name)
        from skyward.values.validation import closest

        hint = closest(name, (*plugin_names(), "around"))
        raise AttributeError(f"There is no plugin {name!r}; {hint}", name=name, obj=None)

    def __dir__() -> list[str]:
        from skyward.plugins.registry import plugin_names

        return sorted({*__all__, *plugin_names()})
