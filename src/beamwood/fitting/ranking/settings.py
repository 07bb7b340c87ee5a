"""The settings of rankers of pairs, and of two stages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from beamwood.fitting.effect import Condition, NotBoth, Only
from beamwood.fitting.method_config import SettingsGroup
from beamwood.fitting.plan import Facts, embeddings_of, start_of
from beamwood.fitting.settings import (
    AttentionStartSettings,
    HistoryLength,
    Horizon,
    ItemColumns,
    ItemStartSettings,
    LoopSettings,
    Mlp,
    NumNegatives,
    NumTargets,
    SeenChoiceSettings,
    TableOptimiserSettings,
    TrainedConfig,
    WeightChoiceSettings,
    Width,
)
from beamwood.models.parameters import LayerWidth
from beamwood.models.scorers import SCORERS
from beamwood.retrieval.stored import MOST

__all__ = ["PairConfig", "PairModelSettings", "PairStartSettings", "RankerConfig", "StageModelSettings", "StagesConfig"]

# The longest list that the native kernel of the learned NDCG accepts.
_LONGEST_LIST = 2**16
_GUIDED, _DIN = Only("loss.kind", ("guided",)), Only("model.kind", ("din",))
# The settings of a ranker that apply where histories are read.
_OF_HISTORIES = {"model.length", "examples.horizon"}
# The settings of two stages that apply where no ranker is trained.
_WITHOUT_TRAINING = {
    "start.retriever",
    "start.ranker",
    "model.num_candidates",
    "choose.retriever_weight",
    "choose.seen_weight",
    "choose.monitor",
    "choose.validation_users",
}


class PairModelSettings(SettingsGroup):
    """The kind of a ranker, its inputs and its sizes."""

    kind: Literal["graphrec", "neumf", "din"] = Field(
        "graphrec", description="din reads the history; the others use the user id"
    )
    width: Width | None = Field(
        None, description="embedding width; null: 20 (graphrec), 8 (neumf), 64 (din; the study uses 96)"
    )
    length: HistoryLength = 69
    attention: Annotated[tuple[LayerWidth, ...], _DIN] = Field(
        (36,),
        min_length=1,
        description="widths of din's attention layers; 64 and 16, as in the study, take six times as long",
    )
    mlp: Annotated[Mlp, _DIN] = (128, 64)
    item_columns: ItemColumns = ()
    user_columns: tuple[str, ...] = Field((), description="columns of the user table, as name or name:kind")
    graph: Annotated[bool, Only("model.kind", ("graphrec",))] = Field(
        False, description="graphrec: also use neighbours in the interaction graph"
    )


class PairStartSettings(ItemStartSettings, AttentionStartSettings):
    """The initial weights of din."""

    @classmethod
    def conditions(cls) -> dict[str, tuple[Condition, ...]]:
        """Only din has attention; a score of one's own may start item vectors from transitions, too."""
        return super().conditions() | {"attention": (_DIN,)}


class PairConfig(TrainedConfig):
    """The settings of every ranker of pairs."""

    model: PairModelSettings = PairModelSettings()
    start: PairStartSettings = PairStartSettings()
    optimiser: TableOptimiserSettings = TableOptimiserSettings()

    def resolved(self, facts: Facts) -> dict[str, Any]:
        """The widths are those of the studies, except for DIN; models of ids have no vectors to initialise."""
        kind = self.model.kind
        # Each table has a row for unknown ids.
        rows = [facts.num_users + 1, facts.num_items + 1] if SCORERS[kind].needs_users else [facts.num_items + 1]
        return {
            "model.width": self.model.width or {"graphrec": 20, "neumf": 8, "din": 64}[kind],
            "start.items": start_of(self.start.items, facts.num_items, possible=kind == "din"),
            "optimiser.embeddings": embeddings_of(self.optimiser.embeddings, *rows),
        }


class RankerStartSettings(PairStartSettings):
    """The initial weights of din and of the network that predicts the NDCG."""

    surrogate: Annotated[Literal["auto", "small", "wide"], _GUIDED] = Field(
        "auto",
        description="scale of initial weights: .01 (the study) or 1 / sqrt(inputs); auto: wide for nfm1 and din",
    )


class RankerExampleSettings(SettingsGroup):
    """How training lists are drawn."""

    num_positives: int = Field(5, ge=1, description="positives per list, drawn with replacement")
    horizon: Horizon = 10


class RankerLossSettings(SettingsGroup):
    """The loss of a list; only `kind` and `num_negatives` apply to other losses than GuidedRec's."""

    kind: Literal[
        "guided",
        "logistic",
        "pairwise-logistic",
        "bpr",
        "list-mle",
        "softmax",
        "approx-ndcg",
        "gumbel-ndcg",
        "neural-sort",
    ] = Field("guided", description="guided: learned NDCG in addition to the logistic loss (GuidedRec)")
    num_negatives: NumNegatives = 5
    surrogate: Annotated[Literal["ensemble", "mlp", "nfm1", "nfm2"], _GUIDED] = Field(
        "ensemble", description="network that predicts the NDCG"
    )
    ndcg_at: Annotated[int, _GUIDED] = Field(10, ge=1, description="cutoff k of the learned NDCG")
    logistic_weight: Annotated[float, _GUIDED, Only("loss.with_logloss", (True,))] = Field(
        1.0, gt=0, description="beta: weight of the logistic loss"
    )
    with_logloss: Annotated[bool, _GUIDED] = Field(True, description="false: train only on the predicted NDCG")
    leaky: Annotated[bool, _GUIDED] = Field(False, description="do not detach the scores or freeze the surrogate")


class RankerOptimiserSettings(TableOptimiserSettings):
    """The optimiser of the ranker, and the two others of GuidedRec."""

    ndcg_learning_rate: Annotated[float, _GUIDED] = Field(
        1.3e-3, gt=0, description="for the ranker's updates by the predicted NDCG"
    )
    ndcg_weight_decay: Annotated[float, _GUIDED] = Field(
        0.0615, ge=0, description="for the ranker's updates by the predicted NDCG"
    )
    surrogate_learning_rate: Annotated[float, _GUIDED] = Field(
        2e-3, gt=0, description="for the network that predicts the NDCG"
    )
    surrogate_weight_decay: Annotated[float, _GUIDED] = Field(
        5e-4, ge=0, description="for the network that predicts the NDCG"
    )

    @classmethod
    def conditions(cls) -> dict[str, tuple[Condition, ...]]:
        """Updates by the predicted NDCG have a rate and a decay of their own."""
        by_ndcg_alone = NotBoth(("loss.kind", "guided"), ("loss.with_logloss", False))
        return super().conditions() | dict.fromkeys(("learning_rate", "weight_decay"), (by_ndcg_alone,))


class RankerChoiceSettings(WeightChoiceSettings):
    """The validation users, the metric that chooses the weights, and the items that are ranked."""

    protocol: Literal["sampled", "full"] = Field(
        "sampled", description="rank each label among 99 sampled items, or among all items"
    )


class RankerConfig(PairConfig):
    """A ranker; the defaults are GuidedRec's own for ML-100K. An epoch draws as many positives as interactions."""

    start: RankerStartSettings = RankerStartSettings()
    examples: RankerExampleSettings = RankerExampleSettings()
    loss: RankerLossSettings = RankerLossSettings()
    optimiser: RankerOptimiserSettings = RankerOptimiserSettings(weight_decay=0.01, schedule="constant", clip_norm=None)
    loop: LoopSettings = LoopSettings(batch_size=25, max_epochs=200, evaluate_every=2000, log_every=100, patience=20)
    choose: RankerChoiceSettings = RankerChoiceSettings(validation_users=1000, monitor="sampled/ndcg@10")

    def resolved(self, facts: Facts) -> dict[str, Any]:
        """As `PairConfig`; the study's small initial surrogate is worse for nfm1 and DIN on validation users."""
        start, loss = self.start.surrogate, self.loss
        values = super().resolved(facts)
        if loss.kind == "guided" and start == "auto":
            values["start.surrogate"] = "wide" if loss.surrogate == "nfm1" or self.model.kind == "din" else "small"
        return values

    def without_effect(self, names: Iterable[str]) -> str | None:
        """As `MethodConfig`; of the kinds only DIN reads histories, but scores of one's own (own sizes) may, too."""
        reads = self.model.kind == "din" or type(self.model) is not PairModelSettings
        values, defaults = self.flat(), type(self)().flat()
        for name in () if reads else sorted(_OF_HISTORIES.intersection(names)):
            if values[name] != defaults[name]:
                return _DIN.problem(name, values)
        return super().without_effect(names)

    @model_validator(mode="after")
    def _the_list_fits_the_kernel(self) -> Self:
        positives, negatives = self.examples.num_positives, self.loss.num_negatives
        if positives + negatives > _LONGEST_LIST:
            raise ValueError(
                f"examples.num_positives={positives} and loss.num_negatives={negatives} make a list of more than "
                f"{_LONGEST_LIST} items; lower one of them"
            )
        return self


class StageModelSettings(PairModelSettings):
    """The inputs and sizes of the ranker, and its candidates."""

    num_candidates: int = Field(
        100, ge=1, le=MOST, description="K: candidates from the retriever; the study uses 40, 80, 120"
    )
    context_columns: tuple[str, ...] = Field(
        (), description="log columns with the context of an interaction, as name or name:kind"
    )


class StageStartSettings(PairStartSettings):
    """The fitted models, and how the ranker is initialised."""

    retriever: str | None = Field(None, description="folder of the fitted retriever (--retriever); required")
    ranker: str | None = Field(
        None,
        description="--ranker: folder of a fitted ranker or retriever, or a counting method; null: train one",
    )


class StageExampleSettings(SettingsGroup):
    """How the training examples of the ranker are drawn."""

    pairs: Literal["all", "harmonised"] = Field(
        "all", description="all pairs (TS), or only those that this retriever returns (H-TS)"
    )
    horizon: Horizon = 10
    num_targets: NumTargets = 8
    max_examples: int = Field(200_000, ge=1, description="maximum number of training histories, sampled from all")


class StageLossSettings(SettingsGroup):
    """The softmax of a target among its negatives."""

    negatives: Literal["unseen", "uniform", "candidates"] = Field(
        "unseen",
        description="negatives: unseen items (for seen removed), all items (for seen kept), or retrieved candidates",
    )
    num_negatives: NumNegatives = 60


class StageChoiceSettings(SeenChoiceSettings):
    """The validation users, the metric that chooses the weights, and the weights of the blend."""

    retriever_weight: float | None = Field(
        None,
        ge=0,
        le=MOST,
        description="w in ranker score + w * retriever score; null: chosen on validation users; the study: 0",
    )


class StagesConfig(PairConfig):
    """Two stages; the ranker is the paper's DIN, in a size that two cores train in minutes."""

    model: StageModelSettings = StageModelSettings(kind="din")
    start: StageStartSettings = StageStartSettings()
    examples: StageExampleSettings = StageExampleSettings()
    loss: StageLossSettings = StageLossSettings()
    optimiser: TableOptimiserSettings = TableOptimiserSettings(learning_rate=3e-3, warmup_steps=100)
    loop: LoopSettings = LoopSettings(max_steps=4000, evaluate_every=250)
    choose: StageChoiceSettings = StageChoiceSettings(validation_users=600, monitor="removed/ndcg@20")

    def resolved(self, facts: Facts) -> dict[str, Any]:
        """As `PairConfig`, unless a ranker is given: then nothing is trained."""
        return super().resolved(facts) if self.start.ranker is None else {}

    @model_validator(mode="after")
    def _no_setting_is_ignored(self) -> Self:
        ignored = sorted(self.given - _WITHOUT_TRAINING)
        if self.start.ranker is not None and ignored:
            raise ValueError(
                f"{', '.join(ignored)}: no effect with start.ranker={self.start.ranker!r}, as nothing is trained; "
                "leave them out, or leave out the ranker (--ranker) to train one"
            )
        return self
