"""Views of a pool: rows and tables, texts, and the console."""

from skyward.events.output import StreamName
from skyward.formatting import (
    WORK_ENDED,
    asked_to_stop,
    count_text,
    duration_text,
    joined,
    money_text,
    nodes_text,
    size_text,
)
from skyward.reporting.console import opening_quietly, style_of
from skyward.reporting.interleave import LabelledLines, Source
from skyward.reporting.screen import is_terminal, notify, screen
from skyward.reporting.task_output import live_columns
from skyward.views.costs import cost_table
from skyward.views.drawing import table
from skyward.views.offers import offer_table
from skyward.views.projection import PoolTables, Table, project
from skyward.views.rows import KEPT, LOGS, ROWS, FailedPoolRow, OrphanRow, OutputRow, Row
from skyward.views.settings import default_settings, shown_value
from skyward.views.static import mime_bundle
from skyward.views.tables import decision_table, kept_table, node_table, pool_table, recovered_table, task_table

__all__ = [
    "KEPT",
    "LOGS",
    "ROWS",
    "WORK_ENDED",
    "FailedPoolRow",
    "LabelledLines",
    "OrphanRow",
    "OutputRow",
    "PoolTables",
    "Row",
    "Source",
    "StreamName",
    "Table",
    "asked_to_stop",
    "cost_table",
    "count_text",
    "decision_table",
    "default_settings",
    "duration_text",
    "is_terminal",
    "joined",
    "kept_table",
    "live_columns",
    "mime_bundle",
    "money_text",
    "node_table",
    "nodes_text",
    "notify",
    "offer_table",
    "opening_quietly",
    "pool_table",
    "project",
    "recovered_table",
    "screen",
    "shown_value",
    "size_text",
    "style_of",
    "table",
    "task_table",
]
