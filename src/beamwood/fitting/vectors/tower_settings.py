"""The settings of two towers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from beamwood.fitting.effect import Condition, Not, Only
from beamwood.fitting.method_config import SettingsGroup
from beamwood.fitting.plan import Facts, embeddings_of, start_of
from beamwood.fitting.settings import (
    ItemColumns,
    ItemStartSettings,
    LoopSettings,
    SeenChoiceSettings,
    TableOptimiserSettings,
)
from beamwood.fitting.vectors.settings import EncoderModelSettings, HorizonConfig, VectorConfig, sizes_by, validations
from beamwood.models.encoders import AnySizes, EncoderName

__all__ = ["TowerConfig", "TowerLossSettings"]

if TYPE_CHECKING:
    from beamwood.data.split import Split

    UserTower = str
else:
    UserTower = Literal["mf", "mean", EncoderName]


class TowerModelSettings(AnySizes, EncoderModelSettings):
    """Two towers."""

    user_tower: UserTower = Field(
        "mean", description="user vector by user id (mf), by the history's mean, or by a sequence encoder"
    )
    normalise: bool = Field(False, description="score by cosine; then set temperature to about 0.1")
    temperature: float = Field(1.0, gt=0, description="divisor of the scores")
    item_columns: ItemColumns = ()

    @classmethod
    def conditions(cls) -> dict[str, tuple[Condition, ...]]:
        """Each encoder reads its own sizes; the mean of a history has no dropout, and a user id no history."""
        of_histories = {"length": (Not("model.user_tower", ("mf",)),)}
        of_encoders = {"dropout": (Not("model.user_tower", ("mf", "mean")),)}
        return super().conditions() | sizes_by("model.user_tower") | of_histories | of_encoders


class TowerLossSettings(SettingsGroup):
    """The softmax of an item among its negatives."""

    negatives: Literal["full", "ssl", "ssl-pop", "mns", "g-tower", "bir", "xir"] = Field(
        "xir", description="negatives of an item: the whole catalogue, or in-batch items by one of the samplers"
    )
    correction: Annotated[Literal["sampled", "program"], Only("loss.negatives", ("ssl-pop", "mns", "g-tower"))] = Field(
        "sampled", description="correction of sampling bias: unbiased for unmasked items, or as in public code"
    )
    form: Annotated[Literal["resampled", "weighted", "corrected"], Only("loss.negatives", ("bir",))] = Field(
        "resampled", description="form of BIR"
    )
    draw: Annotated[Literal["systematic", "independent"], Only("loss.negatives", ("bir", "xir"))] = Field(
        "systematic", description="sampling scheme of BIR and XIR"
    )
    cache_share: Annotated[float, Only("loss.negatives", ("xir",))] = Field(
        0.5, ge=0, le=1, description="lambda of XIR: share of the cache's softmax"
    )
    cache_counts: Annotated[Literal["step", "all"], Only("loss.negatives", ("xir",))] = Field(
        "step", description="XIR samples its cache by item counts of the last step or of all steps"
    )
    num_uniform: Annotated[int | None, Only("loss.negatives", ("mns",))] = Field(
        None, ge=1, description="uniform negatives of MNS; null: the batch size"
    )
    rate: Annotated[float, Only("loss.negatives", ("g-tower",))] = Field(
        0.01, gt=0, le=1, description="rate of G-Tower; the paper uses 1e-4 for long streams"
    )
    mask_known: bool | None = Field(
        None,
        description="exclude a user's other training items as negatives; null: except for bir and xir, which it harms",
    )


class TowerConfig(HorizonConfig, VectorConfig):
    """Two towers; an epoch goes through all training interactions."""

    model: TowerModelSettings = TowerModelSettings()
    start: ItemStartSettings = ItemStartSettings()
    loss: TowerLossSettings = TowerLossSettings()
    optimiser: TableOptimiserSettings = TableOptimiserSettings(learning_rate=1e-2, weight_decay=1e-5, clip_norm=None)
    loop: LoopSettings = LoopSettings(batch_size=2048, max_epochs=30)
    choose: SeenChoiceSettings = SeenChoiceSettings(monitor="removed/ndcg@20")

    def resolved(self, facts: Facts) -> dict[str, Any]:
        """The initial vectors, the mask, the embedding optimiser, and at least one validation an epoch.

        Vectors of user ids have no start. A mask harms importance resampling, and no other sampler. Small logs are
        overfitted within a few epochs, so each epoch is validated.
        """
        tower, loss = self.model.user_tower, self.loss
        user_rows = {"mf": facts.num_users, "mean": facts.num_items + 1}.get(tower, facts.num_items)
        # The full softmax moves every item.
        rows = [user_rows] if loss.negatives == "full" else [user_rows, facts.num_items + 1]
        masks = loss.negatives not in ("bir", "xir") if loss.mask_known is None else loss.mask_known
        values: dict[str, Any] = {
            "start.items": start_of(self.start.items, facts.num_items, possible=tower != "mf"),
            "loss.mask_known": masks,
            "optimiser.embeddings": embeddings_of(self.optimiser.embeddings, *rows),
        }
        values |= validations(self, int(facts.num_users * facts.mean_history), self.loop.batch_size)
        if loss.negatives == "mns":
            values["loss.num_uniform"] = loss.num_uniform or self.loop.batch_size
        return values

    def chosen(self, split: Split, options: Mapping[str, Any]) -> dict[str, Any]:
        """The horizon, unless it is given or the tower reads no history."""
        return {} if self.model.user_tower == "mf" else super().chosen(split, options)

    @model_validator(mode="after")
    def _only_a_history_has_a_next_item(self) -> Self:
        horizon = self.examples.horizon
        if self.model.user_tower == "mf" and horizon != 1:
            raise ValueError(
                f"examples.horizon={horizon} is for towers that read histories, and model.user_tower=mf reads none; "
                "leave one out"
            )
        return self

    @model_validator(mode="after")
    def _a_batch_has_a_negative(self) -> Self:
        if self.loop.batch_size < 2:
            raise ValueError(f"loop.batch_size={self.loop.batch_size} is below 2; a batch has its own negatives")
        return self
