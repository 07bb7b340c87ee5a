"""LPO4Rec: every preference trains and resumes bit for bit; alignment starts from a fitted model."""

from typing import get_args

import numpy as np
import pytest
import torch

import beamwood
from beamwood.data import Dataset, leave_one_out, read_log
from beamwood.data.markets.synthetic import MarketConfig, make_market
from beamwood.errors import InputError
from beamwood.evaluation.tail import TailOf, TailRule
from beamwood.fitting.plan import Facts
from beamwood.fitting.vectors.preference import PreferenceTask
from beamwood.methods import load_method
from beamwood.methods.lpo4rec import METHOD, Config
from plans import planned
from prepared import Prepared
from resumed import whole_as_in_parts

fit = METHOD.fitted
SMALL = {
    "model.width": 8,
    "model.length": 12,
    "model.num_blocks": 1,
    "model.num_heads": 2,
    "loop.batch_size": 16,
    "choose.validation_users": 20,
}


@pytest.fixture(scope="module")
def split():
    market = make_market(MarketConfig(num_users=200, num_items=90, min_events=20, max_events=40), seed=1)
    return leave_one_out(Dataset.from_log(read_log(market.log), market.item_frame))


@pytest.fixture(scope="module")
def fitted(split, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sasrec") / "saved"
    module = load_method("sasrec")
    module.fitted(
        split, module.Config(**SMALL, **{"loop.max_steps": 4, "loop.evaluate_every": 2}), progress=False
    ).save(folder)
    return folder


@pytest.mark.parametrize("preference", ["lpo", "dpo", "s-dpo", "simpo", "orpo", "none"])
def test_a_resumed_run_equals_an_uninterrupted_one(split, fitted, tmp_path, preference):
    config = Config(
        **SMALL,
        **{
            "start.folder": str(fitted),
            "loss.preference": preference,
            **({} if preference == "none" else {"loss.num_negatives": 3}),
            "loop.max_steps": 6,
            "optimiser.decay_steps": 9,
            "loop.evaluate_every": 3,
        },
    )
    whole = whole_as_in_parts(METHOD, split, config, tmp_path)
    whole.save(tmp_path / "saved")
    assert beamwood.load(tmp_path / "saved").recommend([[1, 2]], k=5) == whole.recommend([[1, 2]], k=5)


def test_alignment_starts_at_the_fitted_model(split, fitted):
    task = Prepared(
        PreferenceTask(
            split, planned(Config(**SMALL, **{"start.folder": str(fitted), "loss.preference": "dpo"}), split.train)
        ),
        seed=0,
    )
    before = beamwood.load(fitted).searcher.first.vectors
    assert np.array_equal(task.searcher().vectors, before)
    assert all(not parameter.requires_grad for parameter in task.reference.parameters())
    # Policy and reference are equal, so DPO's margin is 0 and its loss ln 2.
    task.model.eval()
    batch = task.batch(np.arange(8))
    rows, columns = torch.nonzero(batch.targets_BL >= 0, as_tuple=True)
    queries = task.model(batch.items_BL)[rows, columns]
    cross_entropy = task.cross_entropy(queries, batch.targets_BL[rows, columns], task.rng)
    loss = task.preference(batch, rows, columns, queries, cross_entropy, task.rng)
    assert torch.allclose(loss, torch.full_like(loss, np.log(2)), atol=1e-5)


@pytest.mark.parametrize("encoder", ["sasrec", "caser"])
def test_negatives_are_unseen_head_items(split, monkeypatch, encoder):
    task = Prepared(
        PreferenceTask(
            split, planned(Config(**SMALL, **{"loss.num_negatives": 4, "model.encoder": encoder}), split.train)
        ),
        seed=0,
    )
    seen = []
    import beamwood.fitting.vectors.preference as module

    original = module.head_negatives

    def recording(pi, head, banned, *others):
        seen.append((original(pi, head, banned, *others), banned))
        return seen[-1][0]

    monkeypatch.setattr(module, "head_negatives", recording)
    # Several blocks of the catalogue's scores.
    monkeypatch.setattr(module, "BLOCK_CELLS", 300)
    batch = task.batch(np.arange(6))
    task.loss(batch)
    chosen, banned = (torch.cat(parts) for parts in zip(*seen, strict=True))
    rows, columns = torch.nonzero(batch.targets_BL >= 0, as_tuple=True)
    assert len(seen) > 1
    assert len(chosen) == len(rows)
    shift = batch.items_BL.shape[1] - batch.targets_BL.shape[1]
    for place, (row, column) in enumerate(zip(rows.tolist(), columns.tolist(), strict=True)):
        had = set(batch.items_BL[row, : column + shift + 1].tolist()) - {-1} | {batch.targets_BL[row, column].item()}
        assert set(banned[place].tolist()) == had
        assert not had & set(chosen[place].tolist())
    assert not task.tail_N[chosen].any()


@pytest.mark.parametrize("pi", ["prob", "logit", "logprob"])
def test_the_loss_equals_the_papers_formula(split, monkeypatch, pi):
    """Compared with the whole matrix of logits: omega (CE + lambda LPO), values and gradients."""
    import beamwood.fitting.vectors.preference as module

    config = Config(
        **SMALL,
        **{
            "loss.num_negatives": 3,
            "loss.pi": pi,
            "loss.tau": 0.7,
            "loss.strength": 0.4,
            "loss.reweight_strength": 2,
            "loss.negatives": "top",
        },
    )
    task = Prepared(PreferenceTask(split, planned(config, split.train)), seed=0)
    task.model.eval()
    chosen = []
    original = module.head_negatives
    monkeypatch.setattr(module, "head_negatives", lambda *a: chosen.append(original(*a)) or chosen[-1])
    batch = task.batch(np.arange(5))
    task.loss(batch).backward()
    ours = {name: p.grad.clone() for name, p in task.model.named_parameters()}
    value = task.loss(batch).item()
    task.model.zero_grad()
    real = batch.targets_BL >= 0
    targets = batch.targets_BL[real]
    logits = task.model(batch.items_BL)[real] @ task.model.items.weight.T
    log_p = torch.log_softmax(logits, dim=1)
    values = {"prob": log_p.exp(), "logit": logits, "logprob": log_p}[pi] / 0.7
    picked = torch.cat([targets[:, None], chosen[0]], dim=1)
    lpo = -torch.log_softmax(values.gather(1, picked), dim=1)[:, 0]
    omega = torch.softmax(torch.where(task.tail_N[targets], 2.0, 0.0), dim=0)
    plain = (omega * (-log_p.gather(1, targets[:, None])[:, 0] + 0.4 * lpo)).sum()
    plain.backward()
    assert value == pytest.approx(plain.item(), abs=1e-5)
    for name, parameter in task.model.named_parameters():
        assert torch.allclose(ours[name], parameter.grad, atol=1e-5), name


def test_a_recurrent_start_keeps_its_length(split, tmp_path):
    module = load_method("gru4rec")
    small = {"model.width": 8, "model.length": 12, "loop.max_steps": 1}
    module.fitted(split, module.Config(**small), progress=False).save(tmp_path / "gru")
    config = Config(**SMALL, **{"model.encoder": "gru4rec", "start.folder": str(tmp_path / "gru")})
    assert Prepared(PreferenceTask(split, planned(config, split.train)), seed=0).searcher().queries.encoder.length == 12
    with pytest.raises(InputError, match=r"was fitted with length=12, not length=20; set model.length=12"):
        Prepared(PreferenceTask(split, planned(config.changed({"model.length": 20}), split.train)), seed=0)


def test_a_start_with_a_user_branch_is_refused(split, fitted, tmp_path):
    module = load_method("melt")
    module.fitted(split, module.Config(**{"start.folder": str(fitted), "loop.max_steps": 1}), progress=False).save(
        tmp_path / "melt"
    )
    with pytest.raises(InputError, match=r"holds MELT's user branch.*give the model that MELT was fitted on"):
        Prepared(
            PreferenceTask(split, planned(Config(**SMALL, **{"start.folder": str(tmp_path / "melt")}), split.train)),
            seed=0,
        )


def test_the_tail_follows_the_chosen_rule(split):
    masks = {
        of: Prepared(
            PreferenceTask(split, planned(Config(**SMALL, **{"loss.tail_of": of}), split.train)), seed=0
        ).tail_N
        for of in get_args(TailOf)
    }
    for of, mask in masks.items():
        assert np.array_equal(mask, TailRule(of=of).tail(split.train).mask)
    assert not torch.equal(masks["items"], masks["prefixes"])


def test_invalid_starts_are_refused(split, fitted, tmp_path):
    with pytest.raises(InputError, match="needs a reference model"):
        Prepared(PreferenceTask(split, planned(Config(**SMALL, **{"loss.preference": "dpo"}), split.train)), seed=0)
    with pytest.raises(
        InputError, match=r"other sizes \([a-z.]+ has shape \([0-9, ]+\), here \([0-9, ]+\)\); set model.width"
    ):
        Prepared(
            PreferenceTask(
                split, planned(Config(**(SMALL | {"model.width": 16}), **{"start.folder": str(fitted)}), split.train)
            ),
            seed=0,
        )
    with pytest.raises(
        InputError, match=r"other sizes \(the weights differ in 'outputs.weight'\); set model.width.* tied"
    ):
        Prepared(
            PreferenceTask(
                split, planned(Config(**SMALL, **{"model.tied": False, "start.folder": str(fitted)}), split.train)
            ),
            seed=0,
        )
    with pytest.raises(InputError, match=r"was fitted with num_heads=2, not num_heads=4; set model.num_heads=2"):
        Prepared(
            PreferenceTask(
                split, planned(Config(**(SMALL | {"model.num_heads": 4}), **{"start.folder": str(fitted)}), split.train)
            ),
            seed=0,
        )
    load_method("popularity").fitted(split).save(tmp_path / "popular")
    with pytest.raises(InputError, match="give a fitted sequence model"):
        Prepared(
            PreferenceTask(split, planned(Config(**SMALL, **{"start.folder": str(tmp_path / "popular")}), split.train)),
            seed=0,
        )
    with pytest.raises(InputError, match=r"set model.encoder=sasrec, or give a gru4rec"):
        Prepared(
            PreferenceTask(
                split,
                planned(Config(**SMALL, **{"start.folder": str(fitted), "model.encoder": "gru4rec"}), split.train),
            ),
            seed=0,
        )
    for exact, match in (("loss.pi", "prob"), ("loss.preference", "orpo")):
        given = Config(**SMALL, **{exact: match, "loss.sampled_negatives": 5})
        with pytest.raises(InputError, match=f"not for {exact}={match}, which compares exact probabilities"):
            PreferenceTask(split, planned(given, split.train))


@pytest.mark.parametrize(
    ("form", "sampled"),
    [
        ({}, 4_000),
        ({"loss.pi": "logprob"}, 4_000),
        ({"loss.preference": "simpo"}, 4_000),
        ({"loss.preference": "none", "loss.pi": "prob"}, 4_000),
        ({"loss.pi": "prob"}, None),
        ({"loss.preference": "orpo"}, None),
    ],
)
def test_large_catalogues_use_sampling_unless_probabilities_are_compared(form, sampled):
    plan = Config(**form).plan(Facts(num_users=100, num_items=40_000, mean_history=10.0))
    assert plan.loss.sampled_negatives == sampled


@pytest.mark.parametrize("pi", ["logit", "logprob"])
def test_the_preference_does_not_depend_on_sampling(split, pi):
    """It depends only on differences of logits, so the denominator cancels."""
    losses = []
    for count in (None, 40):
        given = Config(**SMALL, **{"loss.sampled_negatives": count, "loss.pi": pi, "loss.num_negatives": 3})
        own = Prepared(PreferenceTask(split, planned(given, split.train)), seed=0)
        batch = own.task.batch(np.arange(16), torch.Generator().manual_seed(1), None)
        rows, columns = torch.nonzero(batch.targets_BL >= 0, as_tuple=True)
        own.task.model.eval()
        queries, targets = own.task.model(batch.items_BL)[rows, columns], batch.targets_BL[rows, columns]
        entropy = own.task.cross_entropy(queries, targets, torch.Generator().manual_seed(2))
        draws = torch.Generator().manual_seed(3)
        losses.append(own.task.preference(batch, rows, columns, queries, entropy, draws))
    assert torch.allclose(*losses, atol=1e-5)
