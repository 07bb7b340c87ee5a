"""From a log to histories: reading, vocabularies, splits, training examples, synthetic markets; without torch."""

from beamwood.data.dataset import Dataset, ItemTable
from beamwood.data.description import describe_log
from beamwood.data.log import ColumnNames, Log, read_log
from beamwood.data.queries import Queries
from beamwood.data.split import Split
from beamwood.data.splits import SPLITS, by_boundary, by_session, by_time, disjoint_users, leave_one_out
from beamwood.data.vocabularies.vocabulary import Vocabulary

__all__ = [
    "SPLITS",
    "ColumnNames",
    "Dataset",
    "ItemTable",
    "Log",
    "Queries",
    "Split",
    "Vocabulary",
    "by_boundary",
    "by_session",
    "by_time",
    "describe_log",
    "disjoint_users",
    "leave_one_out",
    "read_log",
]
