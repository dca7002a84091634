"""Options of pools, the user's files, and what providers and policies there are."""

from skyward.config import Config, load
from skyward.config.files import USER_FILE, ConfigValue
from skyward.config.pools import configured_values
from skyward.control.act.machines.offers import provider_config
from skyward.plugins.registry import plugin_names
from skyward.pool.health.names import conflict
from skyward.providers.protocol import ExecAccess, LocalAccess, SSHAccess, provider_names
from skyward.scaling.registry import POLICIES
from skyward.specs import FrozenMap, Needs, Nodes, NodesLike, OptionFields, Options, Spec, resolve_groups
from skyward.specs.paths import compute_fields, field_paths
from skyward.specs.placement import target_of
from skyward.specs.retries import Retries
from skyward.specs.update import UpdateFields
from skyward.values import limits
from skyward.values.gangs import GANG_PLACEMENTS, GangPlacement
from skyward.values.needs import capability_set, resource_map
from skyward.values.validation import closest, shown

__all__ = [
    "GANG_PLACEMENTS",
    "POLICIES",
    "USER_FILE",
    "Config",
    "ConfigValue",
    "ExecAccess",
    "FrozenMap",
    "GangPlacement",
    "LocalAccess",
    "Needs",
    "Nodes",
    "NodesLike",
    "OptionFields",
    "Options",
    "Retries",
    "SSHAccess",
    "Spec",
    "UpdateFields",
    "capability_set",
    "closest",
    "compute_fields",
    "configured_values",
    "conflict",
    "field_paths",
    "limits",
    "load",
    "plugin_names",
    "provider_config",
    "provider_names",
    "resolve_groups",
    "resource_map",
    "shown",
    "target_of",
]
