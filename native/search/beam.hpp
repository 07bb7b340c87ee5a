// The search over levels: masks and the selection of the best nodes; the kernels compute scores.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "search/amx.hpp"
#include "search/kernel.hpp"
#include "search/model.hpp"

namespace beamwood {

// The shape of a tree: level j >= 1 has R * B^(j-1) nodes, level 0 is the root.
struct TreeShape {
    std::int64_t root_fanout = 1, branching = 2;
    int depth = 1;

    std::int64_t fanout(int level) const { return level == 1 ? root_fanout : branching; }
    std::int64_t level_size(int level) const;
    std::int64_t level_offset(int level) const;
    std::int64_t leaves_below(int level) const;
};

// By level, from the root on: the number of allowed leaves below each node.
using Counts = std::vector<const std::int32_t*>;

// The allowed leaves, ascending; found from the root down, which is fast if few are allowed.
std::vector<std::int32_t> open_leaves(const TreeShape& shape, const Counts& live);

// Throws std::overflow_error if a score is NaN or infinite: a weight is damaged, or far too large.
void require_numbers(const float* begin, const float* end);

enum class Precision { float32, exact, bf16 };

// One row of a batch.
struct Query {
    const std::int32_t* history;  // [L] leaves, -1 absent
    const std::int32_t* banned;   // excluded leaves, ascending
    std::int64_t num_banned;
};

// A search steered by the light head. The head keeps `beam_width` nodes per level, and the scorer judges the best
// `judged` leaves. With `each_level` the scorer judges `judged` nodes on every level and keeps the best `beam_width`. At
// least as many nodes are judged as kept. With `again` the history's own leaves are candidates too.
struct Way {
    std::int64_t beam_width = 1, judged = 1;
    bool each_level = false, again = false;
};

// The state of a search on one thread.
class Worker {
public:
    // With `by_path` the score of a node is the log-probability of its path. The probability of a step is the sigmoid of
    // the model's score. All levels are then scored in float32.
    Worker(const Model& model, const TreeShape& shape, const SearchKernels& kernels, const LightKernels& light_kernels,
           const AmxModel* amx, Precision precision, bool by_path);

    // Beam search down to the last level of `live`; `live[level]` counts the allowed leaves below each node. Writes that
    // level's `leaves` and `scores` [k], best first, padded with -1 and -infinity. Returns the number of scored nodes.
    std::int64_t beam(const Query& query, std::int64_t beam_width, std::int64_t k,
                      const Counts& live, std::int32_t* leaves, float* scores);
    // A search steered by the light head: see `Way`.
    std::int64_t steered(const Query& query, const Way& way, std::int64_t k, const Counts& live, std::int32_t* leaves,
                         float* scores);
    // The candidates of a beam of `beam_width` nodes, by the scorer or by the light head (`steered`). Of each level at
    // most `most` nodes are returned: half are the best, the others are spread evenly over the rest, starting at `offset`
    // in [0, 1). Writes [depth][most]: `nodes`, padded with -1; their `scores` by the scorer; and `weights`, the
    // logarithm of the number of nodes that each represents.
    void visit(const Query& query, std::int64_t beam_width, bool steered, std::int64_t most, double offset,
               const Counts& live, std::int32_t* nodes, float* scores, float* weights);
    // Exact search over the leaves `open`, ascending.
    std::int64_t exact(const Query& query, std::int64_t k, const std::vector<std::int32_t>& open, std::int32_t* leaves,
                       float* scores);
    // Scores of given nodes of a level; -infinity for -1.
    void score(const Query& query, int level, const std::int32_t* nodes, std::int64_t count, float* scores);

private:
    void enter(const Query& query, int level);
    void gather_neighbours(const Query& query);
    void clear_extra();
    void add_single_nodes(int level);
    void look_ahead(int level, const std::int32_t* numbers, std::size_t count, std::int64_t below);
    void open_children(int level, const std::int32_t* live, const Query& query);
    // Selects the k best of `nodes_`: on the last level into `keys_`, unordered, else into `nodes_`.
    void choose(std::int64_t k, bool final);
    void choose_exactly(std::int64_t k, bool final);
    // Beam search by path scores: `beam` with `by_path`.
    std::int64_t beam_of_paths(const Query& query, std::int64_t beam_width, std::int64_t k,
                               const Counts& live);
    void score_nodes();
    void score_nodes_by_tiles();
    // Adds the model's similarity, repeats and neighbours, if any, to the `scores` of `count` nodes.
    void add_fixed(const std::int32_t* wanted, std::int64_t count, float* scores) const;
    void cut_lightly(const Query& query, int level, std::int64_t most);
    void look_lightly(const Query& query, int level);
    void add_history(const Query& query, const std::int32_t* live);
    void rescore(std::int64_t begin, std::int64_t end);
    void write_out(std::int64_t k, std::int32_t* leaves, float* scores);

    const Model& model_;
    const TreeShape& shape_;
    const SearchKernels& kernels_;
    const LightKernels* light_kernels_;
    const AmxModel* amx_;
    Precision precision_;
    bool by_path_;
    Workspace space_;
    std::unique_ptr<AmxWorkspace> amx_space_;
    std::unique_ptr<LightSpace> light_space_;
    std::vector<std::int64_t> light_rows_;
    std::vector<float> light_weights_;
    std::vector<std::int32_t> products_;
    History history_;
    std::vector<std::pair<std::int32_t, std::int32_t>> entries_;
    std::vector<std::int32_t> slot_of_position_;
    const float* level_nodes_ = nullptr;
    const float* level_similar_ = nullptr;
    std::vector<float> similar_query_;  // [R]
    std::vector<float> extra_;  // [nodes of the largest level so far], sparse terms of the level's nodes
    std::vector<std::int32_t> touched_;  // the nodes with a sparse term
    std::vector<std::pair<std::int32_t, float>> near_;  // the leaves near the history, and their weighted sums
    std::vector<const char*> ahead_;
    std::vector<std::int32_t> nodes_, next_, subset_;
    std::vector<float> scores_, subset_scores_, sums_;
    std::vector<std::uint64_t> keys_;
    std::vector<std::pair<float, std::int32_t>> by_distance_;
};

}  // namespace beamwood
