"""`skyward providers` and `skyward plugins`: what is installed."""

from skyward.cli.terminal.answers import write_json, write_table

__all__ = ["plugins", "providers"]


def providers(*, json: bool = False) -> int:
    """Print the installed providers, and where they find credentials. None is asked."""
    from skyward.pool.account.clouds import known_clouds
    from skyward.providers.protocol import provider_names
    from skyward.views.drawing import grid

    clouds = {each.name: each for each in known_clouds()}
    rows = []
    for name in dict.fromkeys((*provider_names(), *clouds)):
        cloud = clouds.get(name)
        credentials = "not needed" if cloud is None else cloud.found or "none"
        rows.append((name, credentials, "" if cloud is None or cloud.found else cloud.how))
    if json:
        write_json([{"provider": name, "credentials": found, "how": how} for name, found, how in rows])
    else:
        write_table(grid(("provider", "credentials", "to use it"), rows, cut=("to use it",)))
    return 0


def plugins(*, json: bool = False) -> int:
    """Print the installed plugins."""
    from skyward.plugins.registry import find_plugin, plugin_names
    from skyward.views.drawing import grid

    rows = [(name, (find_plugin(name).__doc__ or "").partition("\n")[0]) for name in plugin_names()]
    if json:
        write_json([{"plugin": name, "description": text} for name, text in rows])
    else:
        write_table(grid(("plugin", "description"), rows, cut=("description",)))
    return 0
