"""DIN over the nodes of a tree: target attention over the history's ancestors on the node's level.

Shape legend: B rows, L history length, M nodes a row, D width, A attention hidden width, T windows, F first MLP width,
V nodes of the tree, n nodes of a level.

The score is that of `kernels.din.DinWeights`, for history nodes a_l and w = node(n):

    weight_l = attention(a_l, w)                   (2)  of each pair, or from a table of the level: `kernels.attention`
    z_t      = sum of weight_l a_l over window t   (3)  projected by the first layer of the MLP: `models.din_windows`
    f(u, n)  = MLP([z_1; ...; z_T; w]) + terms     (4)  for its hidden layers in blocks, `DinScorer.mlp_scores`

Source: DTR, section 3.2.2, equations 1-5, whose numbers stand beside.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from beamwood.errors import InputError
from beamwood.kernels.activation import prelu
from beamwood.kernels.attention import AttentionLayers, attention_weights, table_attention_weights
from beamwood.kernels.din import DinWeights
from beamwood.kernels.terms import Term, TermQuery, by_name
from beamwood.models.din_windows import projected_window_sums, without_empty_windows
from beamwood.models.plain_layer import plain_array, plain_layer
from beamwood.models.term_module import TermModule
from beamwood.tree.tree import Shape

__all__ = ["ATTENTION_START", "DinScorer", "LevelNodes"]

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
    training. `recompute`: in training, keep only the scores of each level and recompute the rest in backward, for a
    fraction of the memory and more time.
    """

    window_of_place: Tensor
    table_limit = 512
    """Levels with at most this many nodes use the table of all pairs."""

    def __init__(
        self,
        shape: Shape,
        *,
        width: int = 24,
        attention_hidden: int = 36,
        windows: Sequence[int],
        mlp: Sequence[int] = (128, 64, 24),
        norm: str = "none",
        activation: str = "prelu",
        dropout: float = 0.0,
        unit_coordinate: bool = True,
        attention_start: float | None = ATTENTION_START,
        terms: Sequence[Term] = (),
        moves: bool = False,
        recompute: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        _check_choices(norm, activation, recompute=recompute)
        self.shape, self.recompute = shape, recompute
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
        if self.recompute and torch.is_grad_enabled():
            return [checkpoint(self.level_scores, leaves_BL, entry, folds_B, use_reentrant=False) for entry in levels]
        leaves_BL = without_empty_windows(self.windows, leaves_BL)
        first = [self.first_layer(leaves_BL, entry) for entry in levels]
        counts = [part.shape[1] for part in first]
        scores = torch.split(self.mlp_scores(torch.cat(first, dim=1)), counts, dim=1)
        return [self.with_terms(part, leaves_BL, entry, folds_B) for part, entry in zip(scores, levels, strict=True)]

    def level_scores(self, leaves_BL: Tensor, entry: LevelNodes, folds_B: Tensor | None = None) -> Tensor:
        """Scores [B, M] of one level."""
        leaves_BL = without_empty_windows(self.windows, leaves_BL)
        return self.with_terms(self.mlp_scores(self.first_layer(leaves_BL, entry)), leaves_BL, entry, folds_B)

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
        """[B, M, F]: `W [z_1; ...; z_T; w] + b`, the first MLP layer before normalisation and activation."""
        level, offset = entry.level, self.shape.level_offset(entry.level)
        ancestors_BL = torch.div(leaves_BL, self.shape.leaves_below(level), rounding_mode="floor")
        present_BL, history_BL = ancestors_BL >= 0, ancestors_BL.clamp(min=0)
        a_BLD = self.nodes(history_BL + offset)
        w_BMD = self.level_vectors(level)[None] if entry.nodes is None else self.nodes(entry.nodes + offset)
        if self.shape.level_size(level) <= self.table_limit:
            weights_BML = table_attention_weights(
                self.level_vectors(level), history_BL, entry.nodes, present_BL, self.attention_layers
            )
        else:
            weights_BML = attention_weights(a_BLD, w_BMD.expand(len(a_BLD), -1, -1), present_BL, self.attention_layers)

        layer, width = self.hidden[0], self.nodes.embedding_dim
        assert isinstance(layer, nn.Linear)
        of_windows_FTD = layer.weight[:, :-width].view(-1, len(self.windows), width)
        sums_BMF = projected_window_sums(weights_BML, a_BLD, of_windows_FTD, self.windows, self.window_of_place)
        return sums_BMF + layer.bias + functional.linear(w_BMD, layer.weight[:, -width:])

    @property
    def attention_layers(self) -> AttentionLayers:
        """The layers of the attention weight of a pair."""
        return AttentionLayers(
            self.attention_in.weight,
            self.attention_in.bias,
            self.attention_in_act.weight,
            self.attention_out.weight,
            self.attention_out.bias,
            self.attention_out_act.weight,
        )

    def level_vectors(self, level: int) -> Tensor:
        """[n, D], the embeddings of a level's nodes."""
        first, size = self.shape.level_offset(level), self.shape.level_size(level)
        if not self.nodes.sparse:
            return self.nodes.weight[first : first + size]
        # Indexed, as the gradient of a slice would be a whole table.
        vectors: Tensor = self.nodes(torch.arange(first, first + size, device=self.nodes.weight.device))
        return vectors

    def mlp_scores(self, x_BMF: Tensor) -> Tensor:
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

    def export(self) -> DinWeights:
        """Plain float32 arrays for search, batch normalisation folded in."""
        mlp = [*zip(self.hidden, self.acts, self.norms, strict=True), (self.output, None, None)]
        with torch.no_grad():
            return DinWeights(
                nodes=plain_array(self.nodes.weight),
                attention_in=plain_layer(self.attention_in, self.attention_in_act),
                attention_out=plain_layer(self.attention_out, self.attention_out_act),
                windows=np.array(self.windows, np.int64),
                layers=tuple(plain_layer(layer, act, norm) for layer, act, norm in mlp),
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
