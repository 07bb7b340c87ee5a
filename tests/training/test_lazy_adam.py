"""`LazyAdam` equals dense Adam if every row is used, else SparseAdam, and does not change other rows."""

import subprocess
import sys
from copy import deepcopy as copy_of

import pytest
import torch

from beamwood.errors import InputError
from beamwood.training.lazy_adam import LazyAdam, sparse_gradients
from beamwood.training.loop_config import LAZY_FROM


def table(rows=11, width=3, seed=0, dtype=torch.float64):
    return torch.nn.Parameter(torch.randn(rows, width, generator=torch.Generator().manual_seed(seed), dtype=dtype))


def sparse(parameter, rows, values):
    return torch.sparse_coo_tensor(rows[None], values, parameter.shape, check_invariants=True)


def draws(seed, steps, num_rows, width, touched):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        rows = torch.randint(num_rows, (touched,), generator=generator)
        yield rows, torch.randn(touched, width, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize(("decay", "decoupled"), [(0.0, False), (0.1, False), (0.1, True)])
def test_equals_dense_adam_if_every_row_is_used(decay, decoupled, amsgrad):
    ours, theirs = table(), table()
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    dense = kind([theirs], lr=0.05, weight_decay=decay, amsgrad=amsgrad, betas=(0.8, 0.95))
    lazy = LazyAdam(
        [ours],
        lr=0.05,
        weight_decay=decay,
        decoupled=decoupled,
        amsgrad=amsgrad,
        betas=(0.8, 0.95),
    )
    generator = torch.Generator().manual_seed(1)
    for _ in range(20):
        gradient = torch.randn(11, 3, generator=generator, dtype=torch.float64)
        theirs.grad = gradient.clone()
        # Every row twice, out of order: the sum of the parts is the gradient.
        order = torch.randperm(22, generator=generator)
        ours.grad = sparse(ours, (torch.arange(22) % 11)[order], (gradient / 2).repeat(2, 1)[order])
        dense.step()
        lazy.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-13)


def test_sparse_gradients_equal_torch_sparse_adam():
    ours, theirs = table(), table()
    # SparseAdam adds eps before the bias correction, so eps is made too small to matter.
    lazy, reference = LazyAdam([ours], lr=0.05, eps=1e-30), torch.optim.SparseAdam([theirs], lr=0.05, eps=1e-30)
    for rows, values in draws(2, 30, 11, 3, 5):
        ours.grad, theirs.grad = sparse(ours, rows, values), sparse(theirs, rows, values)
        lazy.step()
        reference.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-11)


def test_unused_rows_and_their_moments_do_not_change():
    parameter = table()
    before = parameter.detach().clone()
    lazy = LazyAdam([parameter], weight_decay=0.5, amsgrad=True)
    for _ in range(3):
        parameter.grad = sparse(parameter, torch.tensor([4, 1, 4]), torch.ones(3, 3, dtype=torch.float64))
        lazy.step()
    rest = [row for row in range(11) if row not in (1, 4)]
    assert torch.equal(parameter[rest], before[rest])
    assert not torch.equal(parameter[[1, 4]], before[[1, 4]])
    for name in ("exp_avg", "exp_avg_sq", "max_exp_avg_sq"):
        assert not lazy.state[parameter][name][rest].any()


def test_a_restored_state_continues_as_the_original():
    ours = table(dtype=torch.float32)
    lazy = LazyAdam([ours], lr=0.05, amsgrad=True)
    steps = list(draws(4, 8, 11, 3, 4))
    for rows, values in steps[:4]:
        ours.grad = sparse(ours, rows, values.float())
        lazy.step()
    copy = torch.nn.Parameter(ours.detach().clone())
    restored = LazyAdam([copy], lr=0.9, amsgrad=True)
    restored.load_state_dict(copy_of(lazy.state_dict()))
    assert restored.state[copy]["step"].dtype == torch.float32
    for rows, values in steps[4:]:
        ours.grad, copy.grad = sparse(ours, rows, values.float()), sparse(copy, rows, values.float())
        lazy.step()
        restored.step()
    assert torch.equal(ours, copy)


@pytest.mark.parametrize("decoupled", [False, True])
def test_parameters_with_dense_gradients_equal_torch_adam(decoupled):
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    ours, theirs, embedding = table(), table(), table()
    lazy = LazyAdam(
        [{"params": [ours, embedding]}, {"params": [table(seed=1)], "weight_decay": 0.5}],
        lr=0.05,
        weight_decay=0.1,
        decoupled=decoupled,
    )
    dense = kind([theirs], lr=0.05, weight_decay=0.1, fused=True)
    for rows, values in draws(5, 10, 11, 3, 11):
        ours.grad, theirs.grad = values.clone(), values.clone()
        embedding.grad = sparse(embedding, rows, values)
        lazy.step()
        dense.step()
        assert embedding.grad.is_sparse
    assert torch.equal(ours, theirs)
    assert not torch.equal(embedding, table())


@pytest.mark.parametrize(
    ("kind", "lazy"), [("adam", (False, False)), ("lazy-adam", (True, True)), ("large", (False, True))]
)
def test_the_setting_selects_the_tables_with_sparse_gradients(kind, lazy):
    tables = torch.nn.Embedding(LAZY_FROM - 1, 1), torch.nn.EmbeddingBag(LAZY_FROM, 1, mode="mean", padding_idx=0)
    sparse_gradients(torch.nn.ModuleList(tables), kind)
    for table, expected in zip(tables, lazy, strict=True):
        table(torch.tensor([[0, 3], [7, 3]])).sum().backward()
        assert table.weight.grad.is_sparse == expected


def test_gradients_sparse_in_columns_and_invalid_rates_are_errors():
    parameter = table()
    lazy = LazyAdam([parameter])
    parameter.grad = torch.ones_like(parameter).to_sparse()
    with pytest.raises(InputError, match="sparse in rows alone"):
        lazy.step()
    with pytest.raises(ValueError, match="learning rate"):
        LazyAdam([parameter], lr=-1)


def test_no_compiler_is_loaded():
    """Importing torch's compiler takes seconds in every fit, and it is not used."""
    program = (
        "import sys, torch\n"
        "from beamwood.training.lazy_adam import LazyAdam\n"
        "weight = torch.nn.Parameter(torch.ones(3))\n"
        "optimizer = LazyAdam([weight], lr=0.5)\n"
        "weight.square().sum().backward()\n"
        "optimizer.step()\n"
        "LazyAdam([weight]).load_state_dict(optimizer.state_dict())\n"
        "assert (weight < 0.6).all()\n"
        "assert 'torch._dynamo' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
