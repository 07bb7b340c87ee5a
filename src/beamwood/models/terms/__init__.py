"""The terms added to a tree's score, one file each; neither scorer nor search depends on a particular one."""

from __future__ import annotations

from beamwood.kernels.terms import Term
from beamwood.models.terms.neighbours import Neighbours
from beamwood.models.terms.seen import Seen
from beamwood.models.terms.similarity import Similarity

__all__ = ["TERMS", "Neighbours", "Seen", "Similarity"]

TERMS: dict[str, Term] = {"similarity": Similarity(), "seen": Seen(), "neighbours": Neighbours()}
"""The terms by name, in the order in which they are added."""
