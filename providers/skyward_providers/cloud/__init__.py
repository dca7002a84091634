"""Parts that the providers of clouds share: requests, launches, listings of many machines at once, paces,
and user data."""

from skyward_providers.cloud.checks import run_checks
from skyward_providers.cloud.keys import cluster_keys, host_key_of, ssh_access
from skyward_providers.cloud.launch import launch_each
from skyward_providers.cloud.listing import SharedListing
from skyward_providers.cloud.pace import Pace
from skyward_providers.cloud.rest import ApiError, RestClient, fetch_text, network_ranges
from skyward_providers.cloud.sshd_setup import answers_as, mark_of, sshd_setup
from skyward_providers.cloud.user_data import (
    cloud_config,
    container_start,
    first_process,
    pod_start,
    watch_loop,
    watchdog,
)

__all__ = [
    "ApiError",
    "Pace",
    "RestClient",
    "SharedListing",
    "answers_as",
    "cloud_config",
    "cluster_keys",
    "container_start",
    "fetch_text",
    "first_process",
    "host_key_of",
    "launch_each",
    "mark_of",
    "network_ranges",
    "pod_start",
    "run_checks",
    "ssh_access",
    "sshd_setup",
    "watch_loop",
    "watchdog",
]
