"""The evaluation of a search in one view, at given search options."""

from dataclasses import dataclass, replace

from beamwood.evaluation.protocol import evaluate_views
from beamwood.types import SearchOptions


@dataclass
class Asked:
    """A search that answers by `asked`, and leaves out what it is told to."""

    searcher: object
    asked: SearchOptions

    @property
    def needs(self):
        return self.searcher.needs

    def search(self, query, k, options=SearchOptions()):
        return self.searcher.search(query, k, replace(self.asked, excluded=options.excluded))


def evaluate_view(searcher, queries, *, remove_seen, options=SearchOptions(), **settings):
    """`evaluate_views` of one view; with `remove_seen` that without seen items."""
    view = "removed" if remove_seen else "kept"
    return evaluate_views(Asked(searcher, options), queries, (view,), **settings)[view]
