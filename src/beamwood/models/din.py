"""DIN over the nodes of a tree: target attention over the history's ancestors on the node's level.

Shape legend: B rows, L history length, M nodes a row, D width, A attention hidden width, T windows, F first MLP width,
V nodes of the tree, n nodes of a level.

The score is that of `kernels.din.DinWeights`, computed exactly and at the least cost.

- An attention weight depends on the pair (history node, node) alone. On a level with few nodes all n * n weights are
  computed once and looked up.
- The first MLP layer is linear in the window sums, so `W [z_1; ..; z_T; w] = sum_l weight_l (W_t(l) a_l) + W_w w`.

Source: DTR, section 3.2.2, equations 1-5.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from beamwood.errors import InputError
from beamwood.kernels.activation import prelu
from beamwood.kernels.attention import AttentionLayers, attention_weights
from beamwood.kernels.din import DinWeights, Layer
from beamwood.kernels.terms import Term, TermQuery, by_name
from beamwood.models.term_module import TermModule
from beamwood.tree.tree import Shape

__all__ = ["ATTENTION_START", "WINDOWS", "DinScorer", "LevelNodes"]

WINDOWS = (20, 20, 10, 10, 2, 2, 2, 1, 1, 1)
"""The lengths of the windows of a history, oldest first: they cover its latest 69 interactions."""
ATTENTION_START = 0.3
"""The initial attention of a pair of average nodes; see `DinScorer.reset_parameters`."""
_NORMS, _ACTIVATIONS = ("none", "batch"), ("prelu", "relu")
# Rows of the MLP in a block on a CPU, with gradients and without.
_TRAINING_ROWS, _EVALUATION_ROWS = 8192, 1024


@dataclass(frozen=True, slots=True)
class LevelNodes:
    """Nodes to score on one level: `nodes` int64[B, M], or None for every node of the level in order."""

    level: int
    nodes: Tensor | None


def _check_choices(norm: str, activation: str, *, recompute: bool) -> None:
    """Errors: unknown words, and batch statistics with levels that are computed separately."""
    if norm not in _NORMS:
        raise InputError(f"norm='{norm}' is unknown; known: {', '.join(_NORMS)}")
    if activation not in _ACTIVATIONS:
        raise InputError(f"activation='{activation}' is unknown; known: {', '.join(_ACTIVATIONS)}")
    if recompute and norm == "batch":
        raise InputError("recompute=True needs norm='none'; batch statistics are of all levels together")


class DinScorer(nn.Module):
    """Scores of tree nodes for users given by their histories.

    `width`: D; `attention_hidden`: A; `windows`: the lengths of the windows, oldest first; `mlp`: the widths of its
    hidden layers; `dropout`: the rate after the first of them. `attention_start`: see `reset_parameters`.

    `activation` of the MLP: "prelu" (the paper's program) or "relu" (half the time of a step). `norm="batch"`: batch
    normalisation before each hidden activation of the MLP (folded at export), none in the attention network.
    `unit_coordinate` fixes the first coordinate of every embedding at 1, so that a window sum also carries the sum of
    its attention weights: a similarity of history and node that the MLP can use directly (not in the paper). `terms`:
    added to the network's score, in that order (not in the paper); `moves`: whether the tree may change during
    training. `table_limit`: levels with at most this many nodes use the table of all pairs. `recompute`: in training,
    keep only the scores of each level and recompute the rest in backward, for a fraction of the memory and more time.
    """

    window_of_place: Tensor

    def __init__(
        self,
        shape: Shape,
        *,
        width: int = 24,
        attention_hidden: int = 36,
        windows: Sequence[int] = WINDOWS,
        mlp: Sequence[int] = (128, 64, 24),
        norm: str = "none",
        activation: str = "prelu",
        dropout: float = 0.0,
        unit_coordinate: bool = True,
        attention_start: float | None = ATTENTION_START,
        terms: Sequence[Term] = (),
        moves: bool = False,
        table_limit: int = 512,
        recompute: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        _check_choices(norm, activation, recompute=recompute)
        self.shape, self.table_limit, self.recompute = shape, table_limit, recompute
        self.windows = tuple(windows)
        of_place = torch.repeat_interleave(torch.arange(len(windows)), torch.tensor(windows))
        self.register_buffer("window_of_place", of_place, persistent=False)
        self.nodes = nn.Embedding(shape.num_nodes, width)
        self.attention_in, self.attention_in_act = nn.Linear(3 * width, attention_hidden), nn.PReLU(attention_hidden)
        self.attention_out, self.attention_out_act = nn.Linear(attention_hidden, 1), nn.PReLU(1)
        sizes = [(len(windows) + 1) * width, *mlp]
        self.hidden = nn.ModuleList(nn.Linear(i, o) for i, o in itertools.pairwise(sizes))
        self.norms = nn.ModuleList(nn.BatchNorm1d(o) if norm == "batch" else nn.Identity() for o in mlp)
        self.acts = nn.ModuleList(nn.PReLU(o) if activation == "prelu" else nn.ReLU() for o in mlp)
        self.output = nn.Linear(sizes[-1], 1)
        self.dropout = nn.Dropout(dropout)
        self.unit_coordinate, self.attention_start = unit_coordinate, attention_start
        self.terms = nn.ModuleDict(
            {name: TermModule(term, shape, self.history_length, moves=moves) for name, term in by_name(terms).items()}
        )
        self.reset_parameters(generator)
        if unit_coordinate:
            self.nodes.weight.register_hook(_without_first_column)  # type: ignore[no-untyped-call]

    @property
    def history_length(self) -> int:
        """L: the number of latest interactions that the windows cover."""
        return int(sum(self.windows))

    def reset_parameters(self, generator: torch.Generator | None) -> None:
        """Draw initial weights: embeddings N(0, 0.1), layers by fan-in (He), all from `generator`.

        Attention starts near `attention_start` for every entry, so that windows are initially plain sums. Near 0, where
        a random start (None) may put it, the history has almost no effect until training changes that; near 1, sums of
        20 entries are so large that half of the MLP's units die.
        """
        nn.init.normal_(self.nodes.weight, std=0.1, generator=generator)
        if self.unit_coordinate:
            with torch.no_grad():
                self.nodes.weight[:, 0] = 1
        for layer in [self.attention_in, self.attention_out, *self.hidden, self.output]:
            assert isinstance(layer, nn.Linear)
            nn.init.kaiming_uniform_(layer.weight, a=0.25, generator=generator)
            nn.init.zeros_(layer.bias)
        self.centre_attention()

    @torch.no_grad()
    def centre_attention(self) -> None:
        """Shift the bias of attention so that it is `attention_start` for a pair of average nodes."""
        if self.attention_start is not None:
            mean_1D = torch.zeros_like(self.nodes.weight[:1])
            mean_1D[:, 0] = float(self.unit_coordinate)
            hidden = self.attention_in_act(self.attention_in(torch.cat([mean_1D, mean_1D * mean_1D, mean_1D], dim=1)))
            self.attention_out.bias.add_(self.attention_start - self.attention_out(hidden)[0])

    def forward(self, leaves_BL: Tensor, levels: Sequence[LevelNodes], folds_B: Tensor | None = None) -> list[Tensor]:
        """Scores, one tensor [B, M] for each entry of `levels`, for histories given as leaves (-1 padding, left).

        All levels pass the MLP together, so that batch statistics cover the whole step. `folds_B`: the fold excluded
        from the neighbour lists of each row.
        """
        leaves_BL = self.reached(leaves_BL)
        if self.recompute and torch.is_grad_enabled():
            return [checkpoint(self.level_scores, leaves_BL, entry, folds_B, use_reentrant=False) for entry in levels]
        first = [self.first_layer(leaves_BL, entry) for entry in levels]
        counts = [part.shape[1] for part in first]
        scores = torch.split(self.rest(torch.cat(first, dim=1)), counts, dim=1)
        return [self.with_terms(part, leaves_BL, entry, folds_B) for part, entry in zip(scores, levels, strict=True)]

    def level_scores(self, leaves_BL: Tensor, entry: LevelNodes, folds_B: Tensor | None = None) -> Tensor:
        """Scores [B, M] of one level."""
        leaves_BL = self.reached(leaves_BL)
        return self.with_terms(self.rest(self.first_layer(leaves_BL, entry)), leaves_BL, entry, folds_B)

    def reached(self, leaves_BL: Tensor) -> Tensor:
        """The histories without leading columns that are empty in all of them; these add nothing."""
        reached = torch.nonzero((leaves_BL >= 0).any(dim=0))
        first = int(reached[0]) if len(reached) else leaves_BL.shape[1] - 1
        starts = np.cumsum((0, *self.latest_windows(leaves_BL.shape[1])[:-1]))
        return leaves_BL[:, int(starts[starts <= first][-1]) :]

    def latest_windows(self, length: int) -> tuple[int, ...]:
        """The windows of the latest `length` interactions."""
        ends = np.cumsum(self.windows[::-1])
        return self.windows[-(int(np.searchsorted(ends, length)) + 1) :]

    def held_terms(self) -> dict[str, TermModule]:
        """The terms by name, in the order in which they are added."""
        return {name: module for name, module in self.terms.items() if isinstance(module, TermModule)}

    def with_terms(self, scores_BM: Tensor, leaves_BL: Tensor, entry: LevelNodes, folds_B: Tensor | None) -> Tensor:
        """The scores plus the terms, if any."""
        query = TermQuery(self.shape, entry.level, leaves_BL, entry.nodes, folds_B)
        parts: list[Tensor] = []
        for module in self.held_terms().values():
            if module.term.leaves_only and entry.level < self.shape.depth:
                continue
            added = module(query)
            if module.term.joined and parts:
                parts[-1] = parts[-1] + added
            else:
                parts.append(added)
        return sum(parts, scores_BM)

    @torch.no_grad()
    def evaluate(self, leaves_BL: Tensor, entry: LevelNodes, folds_B: Tensor | None = None) -> Tensor:
        """Scores [B, M] in evaluation mode, whatever the current mode, without gradients."""
        was_training = self.training
        self.eval()
        try:
            return self.level_scores(leaves_BL, entry, folds_B)
        finally:
            self.train(was_training)

    def first_layer(self, leaves_BL: Tensor, entry: LevelNodes) -> Tensor:
        """[B, M, F]: the first MLP layer before normalisation and activation."""
        level = entry.level
        offset, size = self.shape.level_offset(level), self.shape.level_size(level)
        history_BL = torch.div(leaves_BL, self.shape.leaves_below(level), rounding_mode="floor")
        present_BL = history_BL >= 0
        history_BL = history_BL.clamp(min=0)
        a_BLD = self.nodes(history_BL + offset)
        if entry.nodes is None:
            w_BMD = self.level_vectors(offset, size)[None]
        else:
            w_BMD = self.nodes(entry.nodes + offset)
        if size <= self.table_limit:
            weights_BML = self.table_weights(offset, size, history_BL, entry.nodes)
            weights_BML = weights_BML * present_BL[:, None, :]
        else:
            w_all = w_BMD.expand(len(a_BLD), -1, -1) if entry.nodes is None else w_BMD
            weights_BML = self.pair_weights(a_BLD, w_all, present_BL)
        return self.pool(weights_BML, a_BLD) + functional.linear(w_BMD, self.first_weight[:, -w_BMD.shape[-1] :])

    def level_vectors(self, offset: int, size: int) -> Tensor:
        """[n, D], the embeddings of a level's nodes."""
        if not self.nodes.sparse:
            return self.nodes.weight[offset : offset + size]
        # Indexed, as the gradient of a slice would be a whole table.
        vectors: Tensor = self.nodes(torch.arange(offset, offset + size, device=self.nodes.weight.device))
        return vectors

    @property
    def first_weight(self) -> Tensor:
        """[F, (T + 1) D], the weight of the first MLP layer: a part for each window, then one for the node."""
        layer = self.hidden[0]
        assert isinstance(layer, nn.Linear)
        return layer.weight

    def pair_weights(self, a_GLD: Tensor, w_GMD: Tensor, present_GL: Tensor) -> Tensor:
        """Attention weights [G, M, L], 0 where the history entry is absent."""
        layers = AttentionLayers(
            self.attention_in.weight,
            self.attention_in.bias,
            self.attention_in_act.weight,
            self.attention_out.weight,
            self.attention_out.bias,
            self.attention_out_act.weight,
        )
        return attention_weights(a_GLD, w_GMD, present_GL, layers)

    def table_weights(self, offset: int, size: int, history_BL: Tensor, nodes_BM: Tensor | None) -> Tensor:
        """Attention weights [B, M, L] from the table of all pairs of a level's nodes."""
        level_nD = self.level_vectors(offset, size)
        everything = torch.ones(1, size, dtype=torch.bool, device=level_nD.device)
        table_nn = self.pair_weights(level_nD[None], level_nD[None], everything)[0]
        if nodes_BM is None:
            return functional.embedding(history_BL, table_nn.T).transpose(1, 2)
        rows_BMn = functional.embedding(nodes_BM, table_nn)
        return torch.gather(rows_BMn, 2, history_BL[:, None, :].expand(-1, nodes_BM.shape[1], -1))

    def pool(self, weights_BML: Tensor, a_BLD: Tensor) -> Tensor:
        """[B, M, F]: window sums through their part of the first layer, without building the sums."""
        width, windows = a_BLD.shape[-1], self.latest_windows(a_BLD.shape[1])
        first_FTD = self.first_weight[:, :-width].view(-1, len(self.windows), width)
        if a_BLD.device.type == "cpu":
            latest_FTD, parts = first_FTD[:, -len(windows) :], torch.split(a_BLD, list(windows), dim=1)
            each = [functional.linear(part, latest_FTD[:, window]) for window, part in enumerate(parts)]
            projected = torch.cat(each, dim=1)
        else:
            # One product over all places: on a GPU launching a product for each window takes longer than computing it.
            by_place_FLD = first_FTD.index_select(1, self.window_of_place[-a_BLD.shape[1] :])
            projected = torch.einsum("bld,fld->blf", a_BLD, by_place_FLD)
        bias = self.hidden[0].bias
        assert isinstance(bias, Tensor)
        return torch.bmm(weights_BML, projected) + bias

    def rest(self, x_BMF: Tensor) -> Tensor:
        """Scores [B, M] from the first layer's values."""
        num_rows, num_nodes = x_BMF.shape[:2]
        x = x_BMF.flatten(0, 1)
        rows = _TRAINING_ROWS if torch.is_grad_enabled() else _EVALUATION_ROWS
        whole = self.training and any(isinstance(norm, nn.BatchNorm1d) for norm in self.norms)
        if whole or x.device.type != "cpu":
            rows = max(1, len(x))
        # Blocks fit the CPU cache: the MLP makes many passes over its rows.
        scores = torch.cat([self.mlp(part) for part in torch.split(x, rows)])
        return scores.view(num_rows, num_nodes)

    def mlp(self, x_XF: Tensor) -> Tensor:
        """Scores [X, 1] from the first layer's values."""
        x = x_XF
        for index, (layer, norm, act) in enumerate(zip(self.hidden, self.norms, self.acts, strict=True)):
            x = x if index == 0 else layer(x)
            x = prelu(norm(x), act.weight) if isinstance(act, nn.PReLU) else act(norm(x))
            x = self.dropout(x) if index == 0 else x
        scores: Tensor = self.output(x)
        return scores

    def export(self) -> DinWeights:
        """Plain float32 arrays for search, batch normalisation folded in."""
        layers = []
        with torch.no_grad():
            for layer, norm, act in zip(self.hidden, self.norms, self.acts, strict=True):
                assert isinstance(layer, nn.Linear)
                slope = act.weight if isinstance(act, nn.PReLU) else torch.zeros_like(layer.bias)
                assert isinstance(slope, Tensor)
                layers.append(_folded(layer, norm, slope))
            layers.append(_folded(self.output, None, None))
            return DinWeights(
                nodes=_as_array(self.nodes.weight),
                attention_in=_folded(self.attention_in, None, self.attention_in_act.weight),
                attention_out=_folded(self.attention_out, None, self.attention_out_act.weight),
                windows=np.array(self.windows, np.int64),
                layers=tuple(layers),
                terms={name: module.export() for name, module in self.held_terms().items()},
            )


def _without_first_column(gradient: Tensor) -> Tensor:
    """The gradient with a zero first column, for embeddings whose first coordinate is fixed."""
    if gradient.is_sparse:
        values = gradient._values().clone()
        values[:, 0] = 0
        return torch.sparse_coo_tensor(gradient._indices(), values, gradient.shape, check_invariants=False)
    gradient = gradient.clone()
    gradient[:, 0] = 0
    return gradient


def _as_array(tensor: Tensor) -> NDArray[np.float32]:
    return np.ascontiguousarray(tensor.detach().cpu().numpy(), dtype=np.float32)


def _folded(layer: nn.Linear, norm: nn.Module | None, slope: Tensor | None) -> Layer:
    """One affine layer equal to `norm(layer(x))` under running statistics, with its activation's slopes."""
    weight, bias = layer.weight.double(), layer.bias.double()
    if isinstance(norm, nn.BatchNorm1d):
        assert norm.running_mean is not None
        assert norm.running_var is not None
        scale = norm.weight.double() / torch.sqrt(norm.running_var.double() + norm.eps)
        weight = weight * scale[:, None]
        bias = (bias - norm.running_mean.double()) * scale + norm.bias.double()
    slope = torch.ones_like(bias) if slope is None else slope
    return Layer(_as_array(weight), _as_array(bias), _as_array(slope))
