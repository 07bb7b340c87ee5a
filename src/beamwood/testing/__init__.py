"""Contract tests for whoever writes a part: inherit a class, name the part, and pytest finds what it owes."""

from __future__ import annotations

from beamwood.testing.encoders import EncoderContract

__all__ = ["EncoderContract"]
