// The selection of a level's best nodes: by float32 scores, by those of tiles, or by tiles as float32 would select.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "search/beam.hpp"
#include "search/order.hpp"

namespace beamwood {
namespace {

// The minimum number of nodes nearest the cut that are scored in float32, to measure the error of the tiles.
constexpr std::int64_t SAMPLE = 16;
// The margin around the cut, in units of the largest measured deviation. The selection equals that of float32 if all
// deviations are at most half the margin. So 8 allows for deviations four times the largest of the sample.
constexpr float SAFETY = 8;

}  // namespace

// Scores entries [begin, end) of `by_distance_` in float32 and appends them to `subset_scores_`.
void Worker::rescore(std::int64_t begin, std::int64_t end) {
    subset_.clear();
    for (std::int64_t i = begin; i < end; ++i) subset_.push_back(nodes_[by_distance_[i].second]);
    subset_scores_.resize(end);
    kernels_.score(model_, level_nodes_, static_cast<int>(history_.nodes.size()), subset_.data(), end - begin, space_,
                   subset_scores_.data() + begin);
    add_fixed(subset_.data(), end - begin, subset_scores_.data() + begin);
    require_numbers(subset_scores_.data() + begin, subset_scores_.data() + end);
}

void Worker::choose(std::int64_t k, bool final) {
    const std::int64_t count = static_cast<std::int64_t>(nodes_.size());
    if (precision_ == Precision::float32) {
        score_nodes();
    } else {
        score_nodes_by_tiles();
        if (precision_ == Precision::exact) return choose_exactly(k, final);
        require_numbers(scores_.data(), scores_.data() + count);
    }
    keys_.resize(count);
    for (std::int64_t i = 0; i < count; ++i) keys_[i] = key_of(scores_[i], nodes_[i]);
    keep_best(keys_, k);
    if (final) return;
    nodes_.clear();
    for (const std::uint64_t key : keys_) nodes_.push_back(node_of(key));
    std::sort(nodes_.begin(), nodes_.end());
}

// Selects as float32 scores would. Let the k-th largest tile score be the cut, and let tile scores differ from float32
// scores by at most e. A node more than 2 e above the cut is among the k best; one more than 2 e below is not. The nodes
// in between are scored in float32. The bound e is not derived, as a worst-case bound would be useless. It is measured on
// the nodes nearest the cut, for every user and level.
void Worker::choose_exactly(std::int64_t k, bool final) {
    const std::int64_t count = static_cast<std::int64_t>(nodes_.size());
    keys_.clear();
    by_distance_.resize(count);
    float cut = -std::numeric_limits<float>::infinity();
    bool finite = true;
    for (const float score : scores_) finite = finite && std::isfinite(score);
    if (count > k && finite) {
        subset_scores_ = scores_;
        std::nth_element(subset_scores_.begin(), subset_scores_.begin() + (k - 1), subset_scores_.end(),
                         std::greater<>());
        cut = subset_scores_[k - 1];
    }
    // If scores are returned, all nodes from the cut up are scored in float32.
    for (std::int64_t i = 0; i < count; ++i) {
        const float above = scores_[i] - cut;
        by_distance_[i] = {!finite ? 0.0f : final && above >= 0 ? 0.0f : std::fabs(above), static_cast<std::int32_t>(i)};
    }
    std::int64_t rescored = 0;
    float margin = 0, deviation = 0;
    if (count <= k && !final && finite) margin = -1;  // all are kept without scores
    else {
        const std::int64_t sample = std::min(count, SAMPLE + (final ? k : 0));
        std::nth_element(by_distance_.begin(), by_distance_.begin() + (sample - 1), by_distance_.end(),
                         [](const auto& one, const auto& other) { return one.first < other.first; });
        margin = by_distance_[sample - 1].first;
        while (true) {
            const auto near = std::partition(by_distance_.begin() + rescored, by_distance_.end(),
                                             [&](const auto& entry) { return entry.first <= margin; });
            const std::int64_t end = near - by_distance_.begin();
            rescore(rescored, end);
            for (; rescored < end; ++rescored)
                deviation = std::max(deviation,
                                     std::fabs(subset_scores_[rescored] - scores_[by_distance_[rescored].second]));
            if (rescored == count || SAFETY * deviation <= margin) break;
            margin = SAFETY * deviation;
        }
    }
    for (std::int64_t i = 0; i < rescored; ++i)
        keys_.push_back(key_of(subset_scores_[i], nodes_[by_distance_[i].second]));
    if (final) return keep_best(keys_, k);
    // Nodes without a float32 score are selected by their tile score.
    for (std::int64_t i = 0; i < rescored; ++i)
        scores_[by_distance_[i].second] = -std::numeric_limits<float>::infinity();
    next_.clear();
    for (std::int64_t i = 0; i < count; ++i)
        if (scores_[i] > cut) next_.push_back(nodes_[i]);
    keep_best(keys_, k - static_cast<std::int64_t>(next_.size()));
    subset_.clear();
    for (const std::uint64_t key : keys_) subset_.push_back(node_of(key));
    std::sort(subset_.begin(), subset_.end());
    nodes_.resize(next_.size() + subset_.size());
    std::merge(next_.begin(), next_.end(), subset_.begin(), subset_.end(), nodes_.begin());
}

}  // namespace beamwood
