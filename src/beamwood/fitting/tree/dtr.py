"""The fit of DTR: how each level's softmax is sampled, and the estimator of rectified labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Unpack

from beamwood.data.split import Split
from beamwood.errors import InputError
from beamwood.fitting.fitted import check_same_data
from beamwood.fitting.options import Fit, TrainOptions, with_budget
from beamwood.fitting.tree.config import DtrConfig
from beamwood.fitting.tree.estimator import check_estimator, fit_estimator
from beamwood.fitting.tree.fit import fit_tree
from beamwood.fitting.tree.objective import TreeObjective
from beamwood.kernels.terms import Term
from beamwood.losses.levels import LevelLoss
from beamwood.retrieval.retriever import Retriever
from beamwood.sampling.levels import LevelSampler, TreeNegativesByLevel, UniformByLevel
from beamwood.sampling.uniform import adaptive_counts
from beamwood.training.budget import Budget
from beamwood.tree import Tree
from beamwood.types import Estimator, Searcher

__all__ = ["fit_dtr", "make_objective"]


def make_objective(config: DtrConfig, tree: Tree, estimator: Estimator | None) -> TreeObjective:
    """The objective of a configuration: its sampler and its labels."""
    sampler: LevelSampler
    loss, draws = config.loss, config.loss.num_negatives
    assert draws is not None, "a plan has them"
    if loss.negatives == "tree":
        sampler = TreeNegativesByLevel(draws)
    else:
        sampler = UniformByLevel(adaptive_counts(draws, tree.shape.depth, loss.depth_alpha))
    return TreeObjective(sampler, labels=loss.labels, estimator=estimator, normalised=loss.normalised)


def fit_dtr(
    split: Split,
    config: DtrConfig,
    methods: Mapping[str, Fit],
    *,
    estimator: Estimator | Retriever | None = None,
    terms: Sequence[Term] = (),
    loss: LevelLoss | None = None,
    sampler: LevelSampler | None = None,
    **options: Unpack[TrainOptions],
) -> Retriever:
    """Train DTR on `split.train`, keeping the weights and the tree that are best on `split.valid`.

    `estimator`: for rectified labels, a retriever of the same split, or an object that scores its items by index
    (`types.Estimator`, as every searcher is); else `config.loss.estimator` names a folder or one of `methods` (by
    default SASRec), trained first on the same data. `time_limit` in seconds covers both, a third of it at most for the
    estimator. Errors: `InputError` where the log is too short to train on, or the estimator is of another split, knows
    other items, or users alone. `terms`, `loss`, `sampler`: see `TreeOptions`.
    """
    run, options = options.get("run"), with_budget(options)
    known = None if estimator is None else _given(estimator, split)
    name = None
    if config.loss.labels != "summed" and known is None:
        name = config.loss.estimator or "sasrec"
        check_estimator(name, methods)

    def objective(tree: Tree) -> TreeObjective:
        own = known
        if name is not None:
            share = Budget.of(options["time_limit"]).share(1 / 3, f"dtr with its estimator {name}")
            third: TrainOptions = {**options, "time_limit": share}
            own = fit_estimator(name, split, methods, **third)
        if isinstance(own, Searcher) and own.needs.users:
            raise InputError("the estimator needs known users; give one of histories, such as loss.estimator=sasrec")
        return make_objective(config, tree, own)

    # The estimator's run folder lies inside this one.
    with nullcontext() if run is None or name is None else run.locked(resume=options.get("resume", False)):
        return fit_tree(split, config, objective, method="dtr", terms=terms, loss=loss, sampler=sampler, **options)


def _given(estimator: Estimator | Retriever, split: Split) -> Estimator:
    """The estimator of a given object. Errors: a retriever of another split, an object that scores no items."""
    if isinstance(estimator, Retriever):
        check_same_data(estimator, "the estimator", split)
        return estimator.searcher
    if not isinstance(estimator, Estimator):
        raise InputError(
            f"estimator={estimator!r} does not score items; a method's name or a folder is a setting: "
            "config={'loss.labels': 'rectified', 'loss.estimator': ...}"
        )
    return estimator
