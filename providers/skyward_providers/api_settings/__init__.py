"""Parts that the settings of several clouds share: checks of their fields, and the place of their API key.

Apart from `skyward_providers.cloud`, because settings load no client.
"""

from skyward_providers.api_settings.fields import check_ranges, check_texts, check_urls
from skyward_providers.api_settings.keys import find_api_key

__all__ = ["check_ranges", "check_texts", "check_urls", "find_api_key"]
