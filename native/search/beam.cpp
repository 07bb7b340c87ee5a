#include "search/beam.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <stdexcept>

#include "search/order.hpp"

namespace beamwood {
namespace {

// A smaller share of all interactions counts as this one.
constexpr float LEAST_SHARE = 1e-12f;

// log(1 / (1 + exp(-x))) without overflow.
float log_sigmoid(float x) { return std::min(x, 0.0f) - std::log1p(std::exp(-std::fabs(x))); }

}  // namespace

void require_numbers(const float* begin, const float* end) {
    float nothing = 0;
    for (; begin < end; ++begin) nothing += *begin * 0;
    if (nothing != 0) throw std::overflow_error("a score is NaN or infinite");
}

std::int64_t TreeShape::level_size(int level) const {
    if (level == 0) return 1;
    std::int64_t size = root_fanout;
    for (int j = 1; j < level; ++j) size *= branching;
    return size;
}

std::int64_t TreeShape::level_offset(int level) const {
    std::int64_t offset = 0;
    for (int j = 1; j < level; ++j) offset += level_size(j);
    return offset;
}

std::int64_t TreeShape::leaves_below(int level) const {
    std::int64_t below = 1;
    for (int j = level == 0 ? 1 : level; j < depth; ++j) below *= branching;
    return level == 0 ? below * root_fanout : below;
}

std::vector<std::int32_t> open_leaves(const TreeShape& shape, const Counts& live) {
    std::vector<std::int32_t> nodes(1, 0), children;
    for (int level = 1; level <= shape.depth; ++level, nodes.swap(children)) {
        const std::int64_t fanout = shape.fanout(level);
        children.clear();
        for (const std::int32_t parent : nodes)
            for (std::int64_t node = parent * fanout; node < (parent + 1) * fanout; ++node)
                if (live[level][node] > 0) children.push_back(static_cast<std::int32_t>(node));
    }
    return nodes;
}

Worker::Worker(const Model& model, const TreeShape& shape, const SearchKernels& kernels,
               const LightKernels& light_kernels, const AmxModel* amx, Precision precision, bool by_path)
    : model_(model), shape_(shape), kernels_(kernels), light_kernels_(&light_kernels), amx_(amx), precision_(precision),
      by_path_(by_path), space_(model) {
    if (amx_) amx_space_ = std::make_unique<AmxWorkspace>(model, *amx_);
    if (model.light.nodes) light_space_ = std::make_unique<LightSpace>(model.light);
}

// Adds the cache lines of a level's nodes, `numbers` / `below`, to those prefetched during `prepare`. They are scattered
// over a table far larger than the caches. If prefetched at once, they would delay the loads of `prepare`.
void Worker::look_ahead(int level, const std::int32_t* numbers, std::size_t count, std::int64_t below) {
    const std::size_t bytes = model_.width * sizeof(float);
    const char* table = reinterpret_cast<const char*>(model_.nodes) + shape_.level_offset(level) * bytes;
    std::uintptr_t last = 0;
    for (std::size_t i = 0; i < count; ++i) {
        if (numbers[i] < 0) continue;
        const std::int64_t node = below == 1 ? numbers[i] : numbers[i] / below;
        const std::uintptr_t row = reinterpret_cast<std::uintptr_t>(table + node * bytes);
        for (std::uintptr_t line = row / 64 * 64; line < row + bytes; line += 64)
            if (line != last) ahead_.push_back(reinterpret_cast<const char*>(last = line));
    }
}

// Computes the workspace of the query's user on a level.
void Worker::enter(const Query& query, int level) {
    const std::int64_t below = shape_.leaves_below(level);
    entries_.clear();
    for (int position = 0; position < model_.history_length; ++position)
        if (query.history[position] >= 0)
            entries_.emplace_back(static_cast<std::int32_t>(query.history[position] / below), position);
    std::sort(entries_.begin(), entries_.end());
    history_.nodes.clear();
    history_.slots.clear();
    history_.windows.clear();
    slot_of_position_.assign(model_.history_length, -1);
    for (const auto& [node, position] : entries_) {
        if (history_.nodes.empty() || history_.nodes.back() != node) history_.nodes.push_back(node);
        slot_of_position_[position] = static_cast<std::int32_t>(history_.nodes.size()) - 1;
    }
    // Entries in order of position, so that entries of one window, which share a matrix, are adjacent.
    for (int position = 0; position < model_.history_length; ++position) {
        if (slot_of_position_[position] < 0) continue;
        history_.slots.push_back(slot_of_position_[position]);
        history_.windows.push_back(model_.window_of[position]);
    }
    level_nodes_ = model_.nodes + shape_.level_offset(level) * model_.width;
    const Aligned<float>& table = model_.tables[level];
    space_.table = table.size() > 0;
    space_.table_rows.clear();
    if (space_.table)
        for (const std::int32_t node : history_.nodes)
            space_.table_rows.push_back(table.data() + node * shape_.level_size(level));
    if (model_.similar) {
        const int width = model_.similar_width;
        level_similar_ = model_.similar + shape_.level_offset(level) * width;
        similar_query_.assign(width, 0);
        for (int position = 0; position < model_.history_length; ++position) {
            if (query.history[position] < 0) continue;
            const float* row = level_similar_ + query.history[position] / below * width;
            for (int at = 0; at < width; ++at) similar_query_[at] += model_.places[position] * row[at];
        }
    }
    add_single_nodes(level);
    // A whole level is read sequentially and needs no prefetching.
    ahead_.clear();
    if (nodes_.size() <= 4096) look_ahead(level, nodes_.data(), nodes_.size(), 1);
    // The history on the next level is known already, and needed before the nodes of that level.
    if (level < shape_.depth)
        look_ahead(level + 1, query.history, model_.history_length, shape_.leaves_below(level + 1));
    kernels_.prepare(model_, level_nodes_, history_, ahead_, space_);
}

// Sums the neighbours of the query's history by leaf, for all levels of its search.
void Worker::gather_neighbours(const Query& query) {
    near_.clear();
    if (!model_.near_leaves) return;
    clear_extra();
    const std::int64_t capacity = shape_.level_size(shape_.depth), first = shape_.level_offset(shape_.depth);
    if (static_cast<std::int64_t>(extra_.size()) < capacity) extra_.resize(capacity);
    // All summands are above 0, so a sum of 0 marks a new leaf.
    for (int position = 0; position < model_.history_length; ++position) {
        if (query.history[position] < 0) continue;
        const std::int64_t row = (first + query.history[position]) * model_.num_near;
        for (std::int64_t at = row; at < row + model_.num_near; ++at) {
            const std::int32_t leaf = model_.near_leaves[at];
            const float value = model_.near_places[position] * model_.near_chances[at];
            // Leaves beyond the tree are ignored.
            if (leaf < 0 || leaf >= capacity || (!(value > 0) && std::isfinite(value))) continue;
            if (extra_[leaf] == 0) touched_.push_back(leaf);
            extra_[leaf] += value;
        }
    }
    for (const std::int32_t leaf : touched_) near_.emplace_back(leaf, extra_[leaf]);
}

void Worker::clear_extra() {
    for (const std::int32_t node : touched_) extra_[node] = 0;
    touched_.clear();
}

// Computes the sparse terms of the level, repeats and neighbours, into `extra_`.
void Worker::add_single_nodes(int level) {
    if (!model_.similar && !model_.near_leaves) return;
    clear_extra();
    const std::int64_t size = shape_.level_size(level);
    if (static_cast<std::int64_t>(extra_.size()) < size) extra_.resize(size);
    const auto below = static_cast<std::int32_t>(shape_.leaves_below(level));
    for (const auto& [leaf, sum] : near_) {
        const std::int32_t node = leaf / below;
        if (extra_[node] == 0) touched_.push_back(node);
        extra_[node] += sum;
    }
    const float* shares = model_.near_shares + (near_.empty() ? 0 : shape_.level_offset(level));
    for (const std::int32_t node : touched_) {
        // An infinite share must not pass as a chance of 0.
        const float share = std::isfinite(shares[node]) ? std::max(shares[node], LEAST_SHARE) : NAN;
        extra_[node] = model_.near_gain * std::log1p(extra_[node] / share);
    }
    if (!model_.similar || level < shape_.depth) return;
    for (const auto& [node, position] : entries_) {
        // In this order: if the allocation fails, no value remains that the next search would not reset.
        touched_.push_back(node);
        extra_[node] += model_.repeats[position];
    }
}

// Replaces the parents in `nodes_` by their children with allowed leaves, ascending.
void Worker::open_children(int level, const std::int32_t* live, const Query& query) {
    const std::int64_t fanout = shape_.fanout(level), below = shape_.leaves_below(level);
    const std::int32_t* banned = query.banned;
    const std::int32_t* banned_end = query.banned + query.num_banned;
    next_.clear();
    for (const std::int32_t parent : nodes_) {
        for (std::int64_t node = parent * fanout; node < (parent + 1) * fanout; ++node) {
            std::int64_t count = live[node];
            if (count > 0 && banned != banned_end) {
                while (banned != banned_end && *banned < node * below) ++banned;
                for (; banned != banned_end && *banned < (node + 1) * below; ++banned) --count;
            }
            if (count > 0) next_.push_back(static_cast<std::int32_t>(node));
        }
    }
    nodes_.swap(next_);
}

// `scores_` of `nodes_`, in float32.
void Worker::score_nodes() {
    scores_.resize(nodes_.size());
    kernels_.score(model_, level_nodes_, static_cast<int>(history_.nodes.size()), nodes_.data(),
                   static_cast<std::int64_t>(nodes_.size()), space_, scores_.data());
    add_fixed(nodes_.data(), static_cast<std::int64_t>(nodes_.size()), scores_.data());
    require_numbers(scores_.data(), scores_.data() + scores_.size());
}

// `scores_` of `nodes_` by matrix tiles, in bf16, or in two parts of bf16 where float32's order is wanted.
void Worker::score_nodes_by_tiles() {
    const std::int64_t count = static_cast<std::int64_t>(nodes_.size());
    scores_.resize(count);
    const AmxKernels& tiles = *amx_kernels();
    tiles.prepare(model_, *amx_, level_nodes_, history_, space_, *amx_space_);
    tiles.score(model_, *amx_, level_nodes_, static_cast<int>(history_.nodes.size()), nodes_.data(), count,
                precision_ == Precision::exact, space_, *amx_space_, scores_.data());
    add_fixed(nodes_.data(), count, scores_.data());
}

void Worker::add_fixed(const std::int32_t* wanted, std::int64_t count, float* scores) const {
    if (model_.similar)
        kernels_.add_products(level_similar_, model_.similar_width, similar_query_.data(), wanted, count, scores);
    if (touched_.empty()) return;
    for (std::int64_t i = 0; i < count; ++i) scores[i] += extra_[wanted[i]];
}

void Worker::write_out(std::int64_t k, std::int32_t* leaves, float* scores) {
    std::sort(keys_.begin(), keys_.end(), std::greater<>());
    const std::int64_t found = static_cast<std::int64_t>(keys_.size());
    for (std::int64_t i = 0; i < k; ++i) {
        leaves[i] = i < found ? node_of(keys_[i]) : -1;
        scores[i] = i < found ? score_of(keys_[i]) : -std::numeric_limits<float>::infinity();
    }
}

std::int64_t Worker::beam(const Query& query, std::int64_t beam_width, std::int64_t k,
                          const Counts& live, std::int32_t* leaves, float* scores) {
    std::int64_t scored = 0;
    gather_neighbours(query);
    nodes_.assign(1, 0);
    keys_.clear();
    const int last = static_cast<int>(live.size()) - 1;
    if (by_path_) scored = beam_of_paths(query, beam_width, k, live);
    else for (int level = 1; level <= last; ++level) {
        const bool final = level == last;
        open_children(level, live[level], query);
        if (nodes_.empty()) break;
        if (!final && static_cast<std::int64_t>(nodes_.size()) <= beam_width) continue;
        enter(query, level);
        scored += static_cast<std::int64_t>(nodes_.size());
        choose(final ? k : beam_width, final);
        if (final) break;
        keys_.clear();
    }
    write_out(k, leaves, scores);
    return scored;
}

std::int64_t Worker::beam_of_paths(const Query& query, std::int64_t beam_width, std::int64_t k,
                                   const Counts& live) {
    std::int64_t scored = 0;
    const int last = static_cast<int>(live.size()) - 1;
    sums_.assign(1, 0);
    for (int level = 1; level <= last; ++level) {
        const bool final = level == last;
        const std::int64_t fanout = shape_.fanout(level);
        subset_ = nodes_;  // the parents, ascending, in the order of `sums_`
        open_children(level, live[level], query);
        keys_.clear();
        if (nodes_.empty()) break;
        enter(query, level);
        score_nodes();
        scored += static_cast<std::int64_t>(nodes_.size());
        for (std::size_t i = 0, parent = 0; i < nodes_.size(); ++i) {
            while (subset_[parent] != nodes_[i] / fanout) ++parent;
            keys_.push_back(key_of(sums_[parent] + log_sigmoid(scores_[i]), nodes_[i]));
        }
        keep_best(keys_, final ? k : beam_width);
        if (final) break;
        std::sort(keys_.begin(), keys_.end(), [](auto a, auto b) { return node_of(a) < node_of(b); });
        nodes_.clear();
        sums_.clear();
        for (const std::uint64_t key : keys_) {
            nodes_.push_back(node_of(key));
            sums_.push_back(score_of(key));
        }
    }
    return scored;
}

std::int64_t Worker::exact(const Query& query, std::int64_t k, const std::vector<std::int32_t>& open,
                           std::int32_t* leaves, float* scores) {
    nodes_.clear();
    std::set_difference(open.begin(), open.end(), query.banned, query.banned + query.num_banned,
                        std::back_inserter(nodes_));
    keys_.clear();
    if (!nodes_.empty()) {
        gather_neighbours(query);
        enter(query, shape_.depth);
        choose(k, true);
    }
    const std::int64_t scored = static_cast<std::int64_t>(nodes_.size());
    write_out(k, leaves, scores);
    return scored;
}

void Worker::score(const Query& query, int level, const std::int32_t* nodes, std::int64_t count, float* scores) {
    nodes_.clear();
    for (std::int64_t i = 0; i < count; ++i)
        if (nodes[i] >= 0) nodes_.push_back(nodes[i]);
    std::fill_n(scores, count, -std::numeric_limits<float>::infinity());
    if (nodes_.empty()) return;
    gather_neighbours(query);
    if (by_path_) {
        next_ = nodes_;
        sums_.assign(next_.size(), 0);
        for (int above = 1; above <= level; ++above) {
            const std::int64_t below = shape_.leaves_below(above) / shape_.leaves_below(level);
            for (std::size_t i = 0; i < next_.size(); ++i) nodes_[i] = static_cast<std::int32_t>(next_[i] / below);
            enter(query, above);
            score_nodes();
            for (std::size_t i = 0; i < next_.size(); ++i) sums_[i] += log_sigmoid(scores_[i]);
        }
        for (std::int64_t i = 0, at = 0; i < count; ++i)
            if (nodes[i] >= 0) scores[i] = sums_[at++];
        return;
    }
    enter(query, level);
    if (precision_ == Precision::bf16) {
        score_nodes_by_tiles();
        require_numbers(scores_.data(), scores_.data() + scores_.size());
    } else {
        score_nodes();
    }
    for (std::int64_t i = 0, at = 0; i < count; ++i)
        if (nodes[i] >= 0) scores[i] = scores_[at++];
}

}  // namespace beamwood
