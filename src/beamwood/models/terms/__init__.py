"""What is added to a tree's score, one file each; none is named by the scorer or by the search."""

from __future__ import annotations

from beamwood.kernels.terms import Term
from beamwood.models.terms.neighbours import Neighbours
from beamwood.models.terms.seen import Seen
from beamwood.models.terms.similarity import Similarity

__all__ = ["TERMS", "Neighbours", "Seen", "Similarity"]

TERMS: dict[str, Term] = {"similarity": Similarity(), "seen": Seen(), "neighbours": Neighbours()}
"""The terms by name, in the order in which their parts are added."""
