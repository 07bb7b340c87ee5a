"""The settings of TIGER."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from beamwood.fitting.effect import Condition, Only
from beamwood.fitting.settings import LoopSettings, OptimiserSettings
from beamwood.fitting.vectors.settings import EncoderModelSettings, FolderStartSettings, HorizonConfig
from beamwood.models.encoders import sasrec

__all__ = ["TigerConfig"]

_OF_VECTORS = Only("start.codes", ("vectors",))


class TigerModelSettings(sasrec.Sizes, EncoderModelSettings):
    """SASRec with item vectors that are sums of codeword vectors, and the codes."""

    num_codes: int = Field(3, ge=1, le=16, description="codes per item, not counting the one that resolves collisions")
    num_words: int = Field(256, ge=2, le=256, description="codewords per position")
    beam_width: int = Field(50, ge=1, description="prefixes kept per position in a search; at least k")


class TigerStartSettings(FolderStartSettings):
    """The vectors from which codes are computed."""

    codes: Literal["vectors", "random"] = Field(
        "vectors", description="codes by residual quantisation of vectors, or random codes as a control"
    )
    item_column: Annotated[str | None, _OF_VECTORS, Only("start.folder", (None,))] = Field(
        None, description="list column of the item table with vectors, such as text embeddings"
    )

    @classmethod
    def conditions(cls) -> dict[str, tuple[Condition, ...]]:
        """Random codes read no folder."""
        return super().conditions() | {"folder": (_OF_VECTORS,)}


class TigerConfig(HorizonConfig):
    """TIGER: items are codes of vectors, which are those of a folder, of a column, or from transition counts."""

    model: TigerModelSettings = TigerModelSettings()
    start: TigerStartSettings = TigerStartSettings()
    optimiser: OptimiserSettings = OptimiserSettings(learning_rate=3e-3, warmup_steps=100)
    loop: LoopSettings = LoopSettings(batch_size=32, max_steps=3000)
