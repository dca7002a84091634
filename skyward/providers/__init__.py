"""The provider protocol: its operations, its values, and the registry of providers.

Imports errors and specs.
"""

from skyward.providers.protocol import (
    PROVIDER_FIELDS,
    Access,
    ActsOn,
    Cluster,
    ExecAccess,
    Instance,
    InstanceType,
    LocalAccess,
    Market,
    Offer,
    Provider,
    ProviderConfig,
    RemoteAccess,
    SSHAccess,
    find_provider,
    provider_names,
)

__all__ = [
    "PROVIDER_FIELDS",
    "Access",
    "ActsOn",
    "Cluster",
    "ExecAccess",
    "Instance",
    "InstanceType",
    "LocalAccess",
    "Market",
    "Offer",
    "Provider",
    "ProviderConfig",
    "RemoteAccess",
    "SSHAccess",
    "find_provider",
    "provider_names",
]
