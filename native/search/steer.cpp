// Searches steered by the light head; see search/light.hpp and search/beam.hpp.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "search/beam.hpp"
#include "search/order.hpp"

namespace beamwood {

LightSpace::LightSpace(const LightModel& model) {
    sum.resize(model.width);
    hidden.resize(model.hidden);
    query.resize(model.width);
    units.resize(model.width);
}

// Reduces `nodes_` to its `most` best by the light head and the sparse terms, ascending.
void Worker::cut_lightly(const Query& query, int level, std::int64_t most) {
    if (static_cast<std::int64_t>(nodes_.size()) <= most) return;
    look_lightly(query, level);
    keys_.resize(nodes_.size());
    for (std::size_t i = 0; i < nodes_.size(); ++i) keys_[i] = key_of(scores_[i], nodes_[i]);
    keep_best(keys_, most);
    nodes_.clear();
    for (const std::uint64_t key : keys_) nodes_.push_back(node_of(key));
    std::sort(nodes_.begin(), nodes_.end());
    keys_.clear();
}

// Computes `scores_` of `nodes_` by the light head and the sparse terms.
void Worker::look_lightly(const Query& query, int level) {
    const LightModel& light = model_.light;
    const std::int64_t offset = shape_.level_offset(level), below = shape_.leaves_below(level);
    entries_.clear();
    light_rows_.clear();
    light_weights_.clear();
    for (int position = 0; position < model_.history_length; ++position) {
        if (query.history[position] < 0) continue;
        const std::int32_t node = static_cast<std::int32_t>(query.history[position] / below);
        entries_.emplace_back(node, position);
        light_rows_.push_back(offset + node);
        light_weights_.push_back(light.places[position]);
    }
    std::sort(entries_.begin(), entries_.end());
    add_single_nodes(level);
    light_kernels_->enter(light, light_rows_.data(), light_weights_.data(),
                          static_cast<std::int64_t>(light_rows_.size()), *light_space_);
    products_.resize(nodes_.size());
    scores_.resize(nodes_.size());
    light_kernels_->multiply(light, *light_space_, offset, nodes_.data(), static_cast<std::int64_t>(nodes_.size()),
                             products_.data());
    const bool more = !touched_.empty();
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
        const std::int64_t node = offset + nodes_[i];
        const float product = static_cast<float>(products_[i]) * (light_space_->unit * light.node_scales[node]);
        scores_[i] = product + light.biases[node];
        if (more) scores_[i] += extra_[nodes_[i]];
    }
    require_numbers(scores_.data(), scores_.data() + scores_.size());
}

// Adds the allowed leaves of the history to `nodes_`, as a beam may miss them.
void Worker::add_history(const Query& query, const std::int32_t* live) {
    subset_.clear();
    for (int position = 0; position < model_.history_length; ++position) {
        const std::int32_t leaf = query.history[position];
        if (leaf < 0 || live[leaf] <= 0) continue;
        if (!std::binary_search(query.banned, query.banned + query.num_banned, leaf)) subset_.push_back(leaf);
    }
    std::sort(subset_.begin(), subset_.end());
    subset_.erase(std::unique(subset_.begin(), subset_.end()), subset_.end());
    next_.clear();
    std::set_union(nodes_.begin(), nodes_.end(), subset_.begin(), subset_.end(), std::back_inserter(next_));
    nodes_.swap(next_);
}

std::int64_t Worker::steered(const Query& query, const Way& way, std::int64_t k, const Counts& live,
                             std::int32_t* leaves, float* scores) {
    std::int64_t scored = 0;
    gather_neighbours(query);
    nodes_.assign(1, 0);
    keys_.clear();
    for (int level = 1; level <= shape_.depth; ++level) {
        const bool final = level == shape_.depth;
        open_children(level, live[level], query);
        if (final && way.again) add_history(query, live[level]);
        if (nodes_.empty()) break;
        if (!final && static_cast<std::int64_t>(nodes_.size()) <= way.beam_width) continue;
        if (!final && !way.each_level) {
            cut_lightly(query, level, way.beam_width);
            continue;
        }
        const std::int64_t kept = final ? k : way.beam_width;
        cut_lightly(query, level, std::max(way.judged, kept));
        enter(query, level);
        scored += static_cast<std::int64_t>(nodes_.size());
        choose(kept, final);
        if (!final) keys_.clear();
    }
    write_out(k, leaves, scores);
    return scored;
}

void Worker::visit(const Query& query, std::int64_t beam_width, bool steered, std::int64_t most, double offset,
                   const Counts& live, std::int32_t* nodes, float* scores, float* weights) {
    std::fill_n(nodes, shape_.depth * most, -1);
    std::fill_n(scores, shape_.depth * most, -std::numeric_limits<float>::infinity());
    std::fill_n(weights, shape_.depth * most, 0.0f);
    gather_neighbours(query);
    nodes_.assign(1, 0);
    for (int level = 1; level <= shape_.depth; ++level, nodes += most, scores += most, weights += most) {
        open_children(level, live[level], query);
        if (nodes_.empty()) break;
        if (steered) {
            look_lightly(query, level);
        } else {
            enter(query, level);
            score_nodes();
        }
        const std::int64_t count = static_cast<std::int64_t>(nodes_.size());
        const std::int64_t best = count <= most ? count : most / 2, spread = std::min(count, most) - best;
        keys_.resize(count);
        for (std::int64_t i = 0; i < count; ++i) keys_[i] = key_of(scores_[i], nodes_[i]);
        std::sort(keys_.begin(), keys_.end(), std::greater<>());
        nodes_.clear();
        for (std::int64_t i = 0; i < std::min(count, beam_width); ++i) nodes_.push_back(node_of(keys_[i]));
        std::sort(nodes_.begin(), nodes_.end());
        std::sort(keys_.begin() + best, keys_.end(), [](auto a, auto b) { return node_of(a) < node_of(b); });
        for (std::int64_t i = 0; i < best + spread; ++i) {
            const double stands_for = i < best ? 1 : static_cast<double>(count - best) / static_cast<double>(spread);
            // An offset just below 1 may be rounded to 1.
            const std::int64_t at = i < best ? i : std::min(count - 1, best + static_cast<std::int64_t>(
                (static_cast<double>(i - best) + offset) * stands_for));
            nodes[i] = node_of(keys_[at]);
            scores[i] = score_of(keys_[at]);
            weights[i] = static_cast<float>(std::log(stands_for));
        }
        if (!steered) continue;
        enter(query, level);
        kernels_.score(model_, level_nodes_, static_cast<int>(history_.nodes.size()), nodes, best + spread, space_,
                       scores);
        add_fixed(nodes, best + spread, scores);
        require_numbers(scores, scores + best + spread);
    }
}

}  // namespace beamwood
