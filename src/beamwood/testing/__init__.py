"""Contract tests for whoever writes a part: inherit a class, name the part, and pytest finds what it owes."""

from __future__ import annotations

from beamwood.testing.encoders import EncoderContract
from beamwood.testing.indexes import IndexContract
from beamwood.testing.losses import LevelLossContract
from beamwood.testing.methods import MethodContract
from beamwood.testing.terms import TermContract

__all__ = ["EncoderContract", "IndexContract", "LevelLossContract", "MethodContract", "TermContract"]
