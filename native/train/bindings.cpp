#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "common/border.hpp"
#include "common/cpu.hpp"
#include "train/attention.hpp"
#include "train/guided.hpp"
#include "train/labels.hpp"
#include "train/prelu.hpp"
#include "train/resample.hpp"

namespace beamwood {
namespace {

template <class T, int N>
using Array = AlignedArray<T, N>;

// An argument without conversion, as a converted copy of an output would be lost.
auto array(const char* name) { return nb::arg(name).noconvert(); }

// `starts` are the uniforms of systematic draws.
void require_starts(const float* starts, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i)
        require(starts[i] >= 0 && starts[i] < 1, "starts must lie in [0, 1)");
}

AttentionSizes attention_sizes(const Array<const float, 3>& a, const Array<const float, 3>& w,
                               const Array<const bool, 2>& present, const Array<const float, 2>& weight_in,
                               const Array<const float, 1>& bias_in, const Array<const float, 1>& slope_in,
                               const Array<const float, 1>& weight_out, const Array<const float, 1>& bias_out,
                               const Array<const float, 1>& slope_out) {
    const std::size_t hidden = weight_in.shape(0), width = a.shape(2);
    require(width >= 1 && width <= 65536 && hidden >= 1 && hidden <= 65536, "width or hidden width out of range");
    require(w.shape(0) == a.shape(0) && w.shape(2) == width, "w does not match a");
    require(present.shape(0) == a.shape(0) && present.shape(1) == a.shape(1), "present does not match a");
    require(weight_in.shape(1) == 3 * width, "weight_in does not match a");
    require(bias_in.shape(0) == hidden && slope_in.shape(0) == hidden && weight_out.shape(0) == hidden,
            "a hidden parameter does not match weight_in");
    require(bias_out.shape(0) == 1 && slope_out.shape(0) == 1, "bias_out and slope_out must have one value");
    require(w.shape(1) < (std::size_t(1) << 30) && a.shape(1) < (std::size_t(1) << 30), "too many nodes or entries");
    return {std::int64_t(a.shape(0)), std::int64_t(a.shape(1)), std::int64_t(w.shape(1)), int(width), int(hidden)};
}

SurrogateSizes surrogate_sizes(const Array<const float, 2>& values, const Array<const float, 2>& labels,
                               const Array<const float, 1>& weights, std::int64_t width, bool mlp,
                               std::int64_t degree, const std::optional<Array<float, 2>>& d_values,
                               const std::optional<Array<float, 1>>& d_weights) {
    const std::size_t rows = values.shape(0), size = values.shape(1);
    require(size >= 1 && size <= 65536 && width >= 1 && width <= 65536, "size or width out of range");
    require(degree >= 0 && degree <= 2 && (mlp || degree > 0), "degree must be 0 (only with mlp), 1 or 2");
    const SurrogateSizes sizes{std::int64_t(size), width, degree, mlp};
    require(labels.shape(0) == rows && labels.shape(1) == size, "labels does not match the lists");
    require(std::int64_t(weights.shape(0)) == sizes.weights(), "weights does not match the lists and width");
    require(!d_values || (d_values->shape(0) == rows && d_values->shape(1) == size),
            "the gradient of the lists does not match them");
    require(!d_weights || d_weights->shape(0) == weights.shape(0), "d_weights does not match weights");
    return sizes;
}

}  // namespace

void register_train(nb::module_& module) {
    module.def(
        "attention_forward",
        [](Array<const float, 3> a, Array<const float, 3> w, Array<const bool, 2> present,
           Array<const float, 2> weight_in, Array<const float, 1> bias_in, Array<const float, 1> slope_in,
           Array<const float, 1> weight_out, Array<const float, 1> bias_out, Array<const float, 1> slope_out,
           Array<float, 3> weights, int threads, const std::string& level) {
            const AttentionSizes sizes = attention_sizes(a, w, present, weight_in, bias_in, slope_in, weight_out,
                                                         bias_out, slope_out);
            require(std::int64_t(weights.shape(0)) == sizes.groups && std::int64_t(weights.shape(1)) == sizes.nodes &&
                        std::int64_t(weights.shape(2)) == sizes.entries,
                    "weights does not match a and w");
            const AttentionKernels* kernels = BEAMWOOD_PICK_KERNELS(attention_kernels, choose_level(level));
            const ReleasedGil released;
            kernels->forward(sizes,
                             {a.data(), w.data(), present.data(), weight_in.data(), bias_in.data(), slope_in.data(),
                              weight_out.data(), bias_out.data(), slope_out.data()},
                             weights.data(), threads);
        },
        array("a"), array("w"), array("present"), array("weight_in"), array("bias_in"), array("slope_in"),
        array("weight_out"), array("bias_out"), array("slope_out"), array("weights"), nb::arg("threads") = 1,
        nb::arg("level") = "");
    module.def(
        "attention_backward",
        [](Array<const float, 3> a, Array<const float, 3> w, Array<const bool, 2> present,
           Array<const float, 2> weight_in, Array<const float, 1> bias_in, Array<const float, 1> slope_in,
           Array<const float, 1> weight_out, Array<const float, 1> bias_out, Array<const float, 1> slope_out,
           Array<const float, 3> gradient, Array<float, 3> d_a, Array<float, 3> d_w, Array<float, 2> d_weight_in,
           Array<float, 1> d_bias_in, Array<float, 1> d_slope_in, Array<float, 1> d_weight_out,
           Array<float, 1> d_bias_out, Array<float, 1> d_slope_out, int threads, const std::string& level) {
            const AttentionSizes sizes = attention_sizes(a, w, present, weight_in, bias_in, slope_in, weight_out,
                                                         bias_out, slope_out);
            require(std::int64_t(gradient.shape(0)) == sizes.groups &&
                        std::int64_t(gradient.shape(1)) == sizes.nodes &&
                        std::int64_t(gradient.shape(2)) == sizes.entries,
                    "gradient does not match a and w");
            require(d_a.size() == a.size() && d_w.size() == w.size() && d_weight_in.size() == weight_in.size() &&
                        d_bias_in.size() == bias_in.size() && d_slope_in.size() == slope_in.size() &&
                        d_weight_out.size() == weight_out.size() && d_bias_out.size() == 1 && d_slope_out.size() == 1,
                    "a gradient does not match its input");
            const AttentionKernels* kernels = BEAMWOOD_PICK_KERNELS(attention_kernels, choose_level(level));
            const ReleasedGil released;
            kernels->backward(sizes,
                              {a.data(), w.data(), present.data(), weight_in.data(), bias_in.data(), slope_in.data(),
                               weight_out.data(), bias_out.data(), slope_out.data()},
                              gradient.data(),
                              {d_a.data(), d_w.data(), d_weight_in.data(), d_bias_in.data(), d_slope_in.data(),
                               d_weight_out.data(), d_bias_out.data(), d_slope_out.data()},
                              threads);
        },
        array("a"), array("w"), array("present"), array("weight_in"), array("bias_in"), array("slope_in"),
        array("weight_out"), array("bias_out"), array("slope_out"), array("gradient"), array("d_a"),
        array("d_w"), array("d_weight_in"), array("d_bias_in"), array("d_slope_in"), array("d_weight_out"),
        array("d_bias_out"), array("d_slope_out"), nb::arg("threads") = 1, nb::arg("level") = "");
    module.def(
        "prelu_backward",
        [](Array<const float, 2> x, Array<const float, 1> slope, Array<const float, 2> gradient, Array<float, 2> d_x,
           Array<float, 1> d_slope, int threads, const std::string& level) {
            const std::size_t rows = x.shape(0), columns = x.shape(1);
            require(gradient.shape(0) == rows && gradient.shape(1) == columns, "gradient does not match x");
            require(d_x.shape(0) == rows && d_x.shape(1) == columns, "d_x does not match x");
            require(slope.shape(0) == columns && d_slope.shape(0) == columns, "slope or d_slope does not match x");
            const PreluKernels* kernels = BEAMWOOD_PICK_KERNELS(prelu_kernels, choose_level(level));
            const ReleasedGil released;
            kernels->backward(std::int64_t(rows), std::int64_t(columns), x.data(), slope.data(), gradient.data(),
                              d_x.data(), d_slope.data(), threads);
        },
        array("x"), array("slope"), array("gradient"), array("d_x"), array("d_slope"), nb::arg("threads") = 1,
        nb::arg("level") = "");
    module.def(
        "resample_systematic",
        [](Array<const float, 2> scores, Array<const float, 1> log_q, Array<const bool, 2> masked,
           Array<const float, 1> starts, std::int64_t draws, Array<float, 2> counts, int threads,
           const std::string& level) {
            const std::size_t rows = scores.shape(0), columns = scores.shape(1);
            require(log_q.shape(0) == columns, "log_q does not match scores");
            require(masked.shape(0) == rows && masked.shape(1) == columns, "masked does not match scores");
            require(starts.shape(0) == rows, "starts does not match scores");
            require(counts.shape(0) == rows && counts.shape(1) == columns, "counts does not match scores");
            require(draws >= 1 && draws < (std::int64_t(1) << 24), "draws must be in 1..16777215");
            require_starts(starts.data(), starts.size());
            const ResampleKernels* kernels = BEAMWOOD_PICK_KERNELS(resample_kernels, choose_level(level));
            const ReleasedGil released;
            kernels->systematic(std::int64_t(rows), std::int64_t(columns), scores.data(), log_q.data(), masked.data(),
                                starts.data(), draws, counts.data(), threads);
        },
        array("scores"), array("log_q"), array("masked"), array("starts"), nb::arg("draws"), array("counts"),
        nb::arg("threads") = 1, nb::arg("level") = "");
    module.def(
        "drawn_softmax",
        [](Array<float, 2> scores, Array<const float, 1> log_q, Array<const bool, 2> masked,
           Array<const float, 1> positive, Array<const float, 2> starts,
           const std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t, float>>& parts,
           Array<float, 1> losses, Array<float, 1> own, Array<std::int64_t, 1> drawn, int threads,
           const std::string& level) {
            const std::size_t rows = scores.shape(0), columns = scores.shape(1);
            require(log_q.shape(0) == columns && drawn.shape(0) == columns, "log_q or drawn does not match scores");
            require(masked.shape(0) == rows && masked.shape(1) == columns, "masked does not match scores");
            require(positive.shape(0) == rows && losses.shape(0) == rows && own.shape(0) == rows,
                    "positive, losses or own does not match scores");
            require(starts.shape(0) == rows && starts.shape(1) == parts.size(), "starts does not match scores and parts");
            std::vector<DrawnPart> checked;
            std::int64_t covered = 0;
            for (const auto& [first, stop, draws, share] : parts) {
                require(first == covered && stop > first && stop <= std::int64_t(columns), "parts must cover scores");
                require(draws >= 1 && draws < (std::int64_t(1) << 24), "draws must be in 1..16777215");
                checked.push_back({first, stop, draws, share});
                covered = stop;
            }
            require(covered == std::int64_t(columns), "parts must cover scores");
            require_starts(starts.data(), starts.size());
            const ResampleKernels* kernels = BEAMWOOD_PICK_KERNELS(resample_kernels, choose_level(level));
            const ReleasedGil released;
            kernels->softmax(std::int64_t(rows), std::int64_t(columns), scores.data(), log_q.data(), masked.data(),
                             positive.data(), starts.data(), checked.data(), int(checked.size()), losses.data(),
                             own.data(), drawn.data(), threads);
        },
        array("scores"), array("log_q"), array("masked"), array("positive"), array("starts"), nb::arg("parts"),
        array("losses"), array("own"), array("drawn"), nb::arg("threads") = 1, nb::arg("level") = "");
    module.def(
        "nearest_better",
        [](Array<const float, 2> scores, Array<const std::int32_t, 1> items, Array<const std::int64_t, 1> places,
           Array<std::int64_t, 2> nearest) {
            const std::int64_t rows = scores.shape(0), num_items = scores.shape(1);
            require(std::int64_t(items.shape(0)) == num_items, "items does not match scores");
            require(std::int64_t(places.shape(0)) == rows, "places does not match scores");
            require(std::int64_t(nearest.shape(0)) == rows && nearest.shape(1) == 2, "nearest must be [rows, 2]");
            // A checked copy, as another thread may write to the array during the call.
            const std::vector<std::int64_t> checked(places.data(), places.data() + rows);
            for (const std::int64_t place : checked)
                require(place >= 0 && place < num_items, "a place is out of range");
            const ReleasedGil released;
            nearest_better(rows, num_items, scores.data(), items.data(), checked.data(), nearest.data());
        },
        array("scores"), array("items"), array("places"), array("nearest"));
    module.def(
        "ndcg_surrogate",
        [](Array<const float, 2> p, Array<const float, 2> labels, Array<const float, 1> weights, std::int64_t width,
           bool mlp, std::int64_t degree, Array<float, 1> predicted, std::optional<Array<const float, 1>> gradient,
           std::optional<Array<float, 2>> d_p, std::optional<Array<float, 1>> d_weights, const std::string& level) {
            const SurrogateSizes sizes = surrogate_sizes(p, labels, weights, width, mlp, degree, d_p, d_weights);
            const std::size_t rows = p.shape(0);
            require(predicted.shape(0) == rows, "predicted does not match p");
            require(gradient || (!d_p && !d_weights), "d_p and d_weights need a gradient");
            require(!gradient || gradient->shape(0) == rows, "gradient does not match p");
            const SurrogateKernels* kernels = BEAMWOOD_PICK_KERNELS(surrogate_kernels, choose_level(level));
            const ReleasedGil released;
            kernels->run(sizes, std::int64_t(rows), p.data(), labels.data(), weights.data(),
                         gradient ? gradient->data() : nullptr, nullptr, predicted.data(),
                         d_p ? d_p->data() : nullptr, d_weights ? d_weights->data() : nullptr);
        },
        array("p"), array("labels"), array("weights"), nb::arg("width"), nb::arg("mlp"), nb::arg("degree"),
        array("predicted"), array("gradient") = nb::none(), array("d_p") = nb::none(),
        array("d_weights") = nb::none(), nb::arg("level") = "");
    module.def(
        "guided_move",
        [](Array<const float, 2> scores, Array<const float, 2> labels, Array<const float, 1> weights,
           std::int64_t width, bool mlp, std::int64_t degree, std::int64_t k, std::optional<Array<float, 2>> d_scores,
           std::optional<Array<float, 1>> d_weights, const std::string& level) {
            const SurrogateSizes sizes =
                surrogate_sizes(scores, labels, weights, width, mlp, degree, d_scores, d_weights);
            require(k >= 0, "k must be 0 or more");
            const SurrogateKernels* kernels = BEAMWOOD_PICK_KERNELS(surrogate_kernels, choose_level(level));
            GuidedMove move;
            {
                const ReleasedGil released;
                move = guided_move(*kernels, sizes, std::int64_t(scores.shape(0)), scores.data(), labels.data(),
                                   weights.data(), k, d_scores ? d_scores->data() : nullptr,
                                   d_weights ? d_weights->data() : nullptr);
            }
            return std::make_tuple(move.loss, move.predicted, move.truth);
        },
        array("scores"), array("labels"), array("weights"), nb::arg("width"), nb::arg("mlp"), nb::arg("degree"),
        nb::arg("k"), array("d_scores") = nb::none(), array("d_weights") = nb::none(), nb::arg("level") = "");
    module.def(
        "list_ndcg",
        [](Array<const float, 2> scores, Array<const float, 2> labels, std::int64_t k, Array<float, 1> values) {
            const std::size_t rows = scores.shape(0), size = scores.shape(1);
            require(labels.shape(0) == rows && labels.shape(1) == size, "labels does not match scores");
            require(values.shape(0) == rows, "values does not match scores");
            require(k >= 1, "k must be 1 or more");
            const ReleasedGil released;
            list_ndcg(std::int64_t(rows), std::int64_t(size), k, scores.data(), labels.data(), values.data());
        },
        array("scores"), array("labels"), nb::arg("k"), array("values"));
}
}  // namespace beamwood
