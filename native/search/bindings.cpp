// beamwood._native.Searcher. All arguments are checked here, independently of Python.
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <cmath>
#include <memory>
#include <optional>
#include <stdexcept>
#include <tuple>

#include "common/border.hpp"
#include "common/cpu.hpp"
#include "common/parallel.hpp"
#include "search/background.hpp"
#include "search/beam.hpp"
#include "search/workers.hpp"

namespace beamwood {
namespace {

template <class Value, int Dimensions>
using Array = AlignedArray<const Value, Dimensions>;
using LayerArrays = std::tuple<Array<float, 2>, Array<float, 1>, Array<float, 1>>;
// Vectors of the nodes, weights of the history's places, and the scores of a seen leaf by place.
using SimilarityArrays = std::tuple<Array<float, 2>, Array<float, 1>, Array<float, 1>>;
using NeighbourArrays =
    std::tuple<Array<std::int32_t, 2>, Array<float, 2>, Array<float, 1>, Array<float, 1>, float>;
// Nodes with scales and biases, history vectors with scales, weights of the places, and two layers.
using LightArrays = std::tuple<Array<std::int8_t, 2>, Array<float, 1>, Array<float, 1>, Array<std::int8_t, 2>,
                               Array<float, 1>, Array<float, 1>, Array<float, 2>, Array<float, 1>, Array<float, 2>,
                               Array<float, 1>>;
// Beam width, judged nodes, whether every level is judged, and whether seen leaves are candidates.
using WayNumbers = std::tuple<std::int64_t, std::int64_t, bool, bool>;
using ShapeNumbers = std::tuple<std::int64_t, std::int64_t, std::int64_t>;

// For arrays that every search reads. Arrays with a row per node are memory-mapped and not checked here. A search throws
// if a score is not finite (search/beam.hpp), and Python can check these arrays in full.
template <class Value>
void require_finite(const Value* values, std::size_t count, const std::string& name) {
    // The sum is 0 unless a value is infinite or NaN.
    Value sum = 0;
    for (std::size_t i = 0; i < count; ++i) sum += values[i] * 0;
    require(sum == 0, name + " holds NaN or infinity");
}

template <class... Own>
bool is_there(const nb::ndarray<Own...>& array) {
    return array.is_valid();
}
bool is_there(float) { return true; }

// Where None is accepted for the tuple, nanobind also accepts None for each part.
template <class... Part>
void require_all(const std::optional<std::tuple<Part...>>& parts, const std::string& name) {
    if (!parts) return;
    const bool whole = std::apply([](const auto&... part) { return (is_there(part) && ...); }, *parts);
    require(whole, name + ": None is not an array; omit all parts or none");
}

// Copies of histories and of row bounds, taken before the checks: another thread may write to the caller's arrays
// during a search.
using Leaves = std::vector<std::int32_t>;
struct Excluded {
    std::vector<std::int64_t> indptr;
    Array<std::int32_t, 1> leaves;  // the caller's own; only compared, never used as indices
};

Dense checked_layer(const LayerArrays& arrays, int inputs, const std::string& name) {
    const auto& [weight, bias, slope] = arrays;
    require(weight.shape(1) == static_cast<std::size_t>(inputs) && weight.shape(0) >= 1 && weight.shape(0) < (1u << 16) &&
                bias.shape(0) == weight.shape(0) && slope.shape(0) == weight.shape(0),
            name + ": weight, bias and slope do not match " + std::to_string(inputs) + " inputs");
    require_finite(weight.data(), weight.size(), name + ".weight");
    require_finite(bias.data(), bias.size(), name + ".bias");
    require_finite(slope.data(), slope.size(), name + ".slope");
    return Dense(inputs, static_cast<int>(weight.shape(0)), weight.data(), bias.data(), slope.data());
}

class Searcher {
public:
    Searcher(Array<float, 2> nodes, std::vector<LayerArrays> layers, Array<std::int64_t, 1> windows,
             ShapeNumbers shape, const std::string& level, const std::string& precision, bool by_path, int table_nodes,
             std::optional<SimilarityArrays> similarity, std::optional<NeighbourArrays> neighbours, std::optional<LightArrays> light, int threads)
        : nodes_(nodes), similarity_(similarity), neighbours_(neighbours), light_(light), by_path_(by_path),
          kernels_(*BEAMWOOD_PICK_KERNELS(search_kernels, choose_level(level))),
          light_kernels_(*BEAMWOOD_PICK_KERNELS(light_kernels, choose_level(level))) {
        require_all(similarity, "similarity");
        require_all(neighbours, "neighbours");
        require_all(light, "light");
        set_shape(shape);
        set_model(layers, windows);
        set_similarity();
        set_neighbours();
        set_light();
        set_tables(table_nodes);
        if (precision == "float32") precision_ = Precision::float32;
        else if (precision == "exact") precision_ = Precision::exact;
        else if (precision == "bf16") precision_ = Precision::bf16;
        else throw std::invalid_argument("precision '" + precision + "' is unknown");
        require(!by_path || precision_ == Precision::float32, "by_path needs precision 'float32'");
        if (precision_ != Precision::float32) {
            require(has_amx() && amx_kernels() != nullptr, "precision '" + precision + "' needs AMX");
            amx_ = std::make_unique<AmxModel>();
            amx_kernels()->build(model_, *amx_);
        }
        require(1 <= threads && threads <= 1024, "threads must be in 1..1024");
        workers_ = std::make_unique<Workers>(threads, [this] {
            return std::make_unique<Worker>(model_, shape_, kernels_, light_kernels_, amx_.get(), precision_, by_path_);
        });
    }

    nb::object beam(Array<std::int32_t, 2> history, std::int64_t beam_width, std::int64_t k,
                    std::vector<Array<std::int32_t, 1>> live, Array<std::int64_t, 1> indptr,
                    Array<std::int32_t, 1> banned, bool later) {
        Leaves histories = checked_history(history);
        Excluded excluded = checked_excluded(indptr, banned, history.shape(0));
        require_count(k, "k");
        require_count(beam_width, "beam_width");
        require(live.size() >= 2, "live must have one array per level down to the last one searched");
        const Counts counts = checked_counts(live, static_cast<int>(live.size()) - 1);
        const auto work = [=, live = std::move(live)](Worker& worker, const Query& query, auto... out) {
            return worker.beam(query, beam_width, k, counts, out...);
        };
        return search(std::move(histories), k, std::move(excluded), work, later);
    }

    nb::object steered(Array<std::int32_t, 2> history, WayNumbers numbers, std::int64_t k,
                       std::vector<Array<std::int32_t, 1>> live, Array<std::int64_t, 1> indptr,
                       Array<std::int32_t, 1> banned, bool later) {
        const auto& [beam_width, judged, each_level, again] = numbers;
        check_light();
        Leaves histories = checked_history(history);
        Excluded excluded = checked_excluded(indptr, banned, history.shape(0));
        require_count(k, "k");
        require_count(beam_width, "beam_width");
        require_count(judged, "judged");
        const Counts counts = checked_counts(live, shape_.depth);
        const Way way{beam_width, judged, each_level, again};
        const auto work = [=, live = std::move(live)](Worker& worker, const Query& query, auto... out) {
            return worker.steered(query, way, k, counts, out...);
        };
        return search(std::move(histories), k, std::move(excluded), work, later);
    }

    nb::tuple visit(Array<std::int32_t, 2> history, std::int64_t beam_width, bool steered, std::int64_t most,
                    Array<double, 1> offsets, std::vector<Array<std::int32_t, 1>> live) {
        require(!by_path_, "visit is not supported with by_path");
        if (steered) check_light();
        const Leaves histories = checked_history(history);
        require_count(beam_width, "beam_width");
        require(2 <= most && most <= (1 << 20), "most must be in 2..1048576");
        require(offsets.shape(0) == history.shape(0), "offsets must have one number per history");
        const std::vector<double> starts(offsets.data(), offsets.data() + offsets.shape(0));
        for (const double start : starts) require(start >= 0 && start < 1, "offsets must lie in [0, 1)");
        const Counts counts = checked_counts(live, shape_.depth);
        const std::size_t rows = history.shape(0), levels = shape_.depth, columns = static_cast<std::size_t>(most);
        const std::size_t each = levels * columns;
        auto [nodes, nodes_owner] = owned<std::int32_t>(rows, each);
        auto [scores, scores_owner] = owned<float>(rows, each);
        auto [weights, weights_owner] = owned<float>(rows, each);
        run(histories, [&, nodes = nodes, scores = scores, weights = weights](Worker& worker, std::int64_t row, Query query) {
            worker.visit(query, beam_width, steered, most, starts[row], counts, nodes + row * each,
                         scores + row * each, weights + row * each);
        });
        return nb::make_tuple(Result<std::int32_t, 3>(nodes, {rows, levels, columns}, nodes_owner),
                              Result<float, 3>(scores, {rows, levels, columns}, scores_owner),
                              Result<float, 3>(weights, {rows, levels, columns}, weights_owner));
    }

    nb::object exact(Array<std::int32_t, 2> history, std::int64_t k, std::vector<Array<std::int32_t, 1>> live,
                     Array<std::int64_t, 1> indptr, Array<std::int32_t, 1> banned) {
        require(!by_path_, "exact search is not supported with by_path; use a beam over all leaves");
        Leaves histories = checked_history(history);
        Excluded excluded = checked_excluded(indptr, banned, history.shape(0));
        require_count(k, "k");
        const auto work = [k, open = open_of(checked_counts(live, shape_.depth))](
                              Worker& worker, const Query& query, auto... out) {
            return worker.exact(query, k, open, out...);
        };
        return search(std::move(histories), k, std::move(excluded), work, false);
    }

    Result<float, 2> score(Array<std::int32_t, 2> history, int level, Array<std::int32_t, 2> nodes) {
        require(1 <= level && level <= shape_.depth, "level must be in 1.." + std::to_string(shape_.depth));
        const Leaves histories = checked_history(history), wanted = checked_nodes(nodes, level, -1, "nodes");
        require(nodes.shape(0) == history.shape(0), "nodes and history differ in the number of rows");
        const std::size_t rows = nodes.shape(0), columns = nodes.shape(1);
        auto [scores, scores_owner] = owned<float>(rows, columns);
        run(histories, [&, scores = scores](Worker& worker, std::int64_t row, Query query) {
            worker.score(query, level, wanted.data() + row * columns, columns, scores + row * columns);
        });
        return Result<float, 2>(scores, {rows, columns}, scores_owner);
    }

    std::array<std::uint64_t, 3> queue() { return workers_->queue(); }

private:
    static constexpr std::int64_t MOST = std::int64_t{1} << 31;

    static void require_count(std::int64_t count, const std::string& name) {
        require(1 <= count && count <= MOST, name + "=" + std::to_string(count) + " is outside 1..2147483648");
    }

    void set_shape(const ShapeNumbers& numbers) {
        const auto& [root_fanout, branching, depth] = numbers;
        require(root_fanout >= 1 && branching >= 2 && depth >= 1 && depth <= 31, "the shape is not that of a tree");
        std::int64_t size = root_fanout, total = 0;
        // Bounded before the products, which would otherwise overflow 64 bits.
        require(branching <= MOST / 4, "the tree is too large");
        for (int j = 1; j <= depth; ++j, size *= branching) {
            require(size <= MOST / 4, "the tree is too large");
            total += size;
        }
        require(static_cast<std::size_t>(total) == nodes_.shape(0), "nodes must have one row per node of the tree");
        shape_ = {root_fanout, branching, static_cast<int>(depth)};
    }

    void set_model(const std::vector<LayerArrays>& layers, const Array<std::int64_t, 1>& windows) {
        require(nodes_.shape(1) >= 1 && nodes_.shape(1) < (1u << 14), "nodes must have 1..16383 columns");
        require(layers.size() >= 3, "layers must have the two attention layers and at least one more");
        model_.nodes = nodes_.data();
        model_.width = static_cast<int>(nodes_.shape(1));
        model_.num_windows = static_cast<int>(windows.shape(0));
        require(model_.num_windows >= 1 && model_.num_windows < (1 << 14), "windows must have 1..16383 lengths");
        for (int t = 0; t < model_.num_windows; ++t) {
            const std::int64_t length = windows.data()[t];
            require(length >= 1, "windows must have lengths of 1 or more");
            require(length < (1 << 20) - static_cast<std::int64_t>(model_.window_of.size()),
                    "windows cover more than 1048575 history entries");
            model_.window_of.insert(model_.window_of.end(), length, t);
        }
        model_.history_length = static_cast<int>(model_.window_of.size());
        model_.attention_in = checked_layer(layers[0], 3 * model_.width, "attention_in");
        const Dense out = checked_layer(layers[1], model_.attention_in.outputs, "attention_out");
        require(out.outputs == 1, "attention_out must have one output");
        model_.attention_out.resize(model_.attention_in.stride);
        for (int a = 0; a < out.inputs; ++a) model_.attention_out[a] = out.weight[static_cast<std::size_t>(a) * out.stride];
        model_.attention_out_bias = out.bias[0];
        model_.attention_out_slope = out.slope[0];
        int inputs = (model_.num_windows + 1) * model_.width;
        for (std::size_t i = 2; i < layers.size(); ++i) {
            model_.layers.push_back(checked_layer(layers[i], inputs, "layers." + std::to_string(i - 2)));
            inputs = model_.layers.back().outputs;
            model_.widest = std::max(model_.widest, model_.layers.back().stride);
        }
        require(inputs == 1, "the last layer must have one output");
    }

    void set_similarity() {
        if (!similarity_) return;
        const auto& [vectors, places, repeats] = *similarity_;
        require(vectors.shape(0) == nodes_.shape(0) && vectors.shape(1) >= 1 && vectors.shape(1) < (1u << 14),
                "similarity must have one vector of 1..16383 columns per node");
        const auto length = static_cast<std::size_t>(model_.history_length);
        require(places.shape(0) == length && repeats.shape(0) == length,
                "similarity must have one weight per place of the history");
        require_finite(places.data(), places.size(), "similarity.places");
        require_finite(repeats.data(), repeats.size(), "similarity.repeats");
        model_.similar = vectors.data();
        model_.similar_width = static_cast<int>(vectors.shape(1));
        model_.places.assign(places.data(), places.data() + length);
        model_.repeats.assign(repeats.data(), repeats.data() + length);
    }

    void set_neighbours() {
        if (!neighbours_) return;
        const auto& [leaves, chances, shares, places, gain] = *neighbours_;
        require(leaves.shape(0) == nodes_.shape(0) && leaves.shape(1) >= 1 && leaves.shape(1) < (1u << 14) &&
                    chances.shape(0) == leaves.shape(0) && chances.shape(1) == leaves.shape(1),
                "neighbours must have 1..16383 leaves and chances per node");
        require(shares.shape(0) == nodes_.shape(0), "neighbours must have one share per node");
        const auto length = static_cast<std::size_t>(model_.history_length);
        require(places.shape(0) == length, "neighbours must have one weight per place of the history");
        require_finite(places.data(), places.size(), "neighbours.places");
        require_finite(&gain, 1, "neighbours.gain");
        model_.near_leaves = leaves.data();
        model_.near_chances = chances.data();
        model_.near_shares = shares.data();
        model_.num_near = static_cast<int>(leaves.shape(1));
        model_.near_places.assign(places.data(), places.data() + length);
        model_.near_gain = gain;
    }

    void set_light() {
        if (!light_) return;
        const auto& [nodes, scales, biases, history, history_scales, places, up, up_bias, down, down_bias] = *light_;
        const std::size_t size = nodes_.shape(0), width = nodes.shape(1), hidden = up.shape(0);
        require(!by_path_, "a light head is not supported with by_path");
        require(nodes.shape(0) == size && 1 <= width && width < (1u << 14) && history.shape(0) == size &&
                    history.shape(1) == width && scales.shape(0) == size && biases.shape(0) == size &&
                    history_scales.shape(0) == size,
                "light must have two vectors of 1..16383 columns, their scales and a bias per node");
        require(places.shape(0) == static_cast<std::size_t>(model_.history_length),
                "light must have one weight per place of the history");
        require(1 <= hidden && hidden < (1u << 14) && up.shape(1) == width && up_bias.shape(0) == hidden &&
                    down.shape(0) == width && down.shape(1) == hidden && down_bias.shape(0) == width,
                "the layers of light do not match its width");
        const std::pair<const Array<float, 1>*, const char*> rows[] = {
            {&places, "places"}, {&up_bias, "up_bias"}, {&down_bias, "down_bias"}};
        for (const auto& [row, name] : rows) require_finite(row->data(), row->size(), std::string("light.") + name);
        require_finite(up.data(), up.size(), "light.up");
        require_finite(down.data(), down.size(), "light.down");
        LightModel& light = model_.light;
        light.nodes = nodes.data();
        light.node_scales = scales.data();
        light.biases = biases.data();
        light.history = history.data();
        light.history_scales = history_scales.data();
        light.width = static_cast<int>(width);
        light.hidden = static_cast<int>(hidden);
        light.places.assign(places.data(), places.data() + places.size());
        light.up.resize(width * hidden);
        light.down.resize(width * hidden);
        light.up_bias.resize(hidden);
        light.down_bias.resize(width);
        std::copy_n(up_bias.data(), hidden, light.up_bias.data());
        std::copy_n(down_bias.data(), width, light.down_bias.data());
        for (std::size_t at = 0; at < width; ++at)
            for (std::size_t j = 0; j < hidden; ++j) {
                light.up[at * hidden + j] = up.data()[j * width + at];
                light.down[j * width + at] = down.data()[at * hidden + j];
            }
    }

    void check_light() const { require(model_.light.nodes != nullptr, "the searcher has no light head"); }

    void set_tables(int most) {
        require(0 <= most && most < (1 << 14), "table_nodes must be in 0..16383");
        Workspace space(model_);
        model_.tables.resize(shape_.depth + 1);
        for (int j = 1; j <= shape_.depth && shape_.level_size(j) <= most; ++j) {
            const int size = static_cast<int>(shape_.level_size(j));
            Aligned<float> table(static_cast<std::size_t>(size) * size);
            kernels_.tabulate(model_, model_.nodes + shape_.level_offset(j) * model_.width, size, space, table.data());
            model_.tables[j] = std::move(table);
        }
    }

    // The counts of each level, from the root on.
    Counts checked_counts(const std::vector<Array<std::int32_t, 1>>& live, int last) const {
        require(last <= shape_.depth && live.size() == static_cast<std::size_t>(last) + 1,
                "live must have one array per level");
        Counts counts;
        for (int j = 0; j <= last; ++j) {
            require(live[j].shape(0) == static_cast<std::size_t>(shape_.level_size(j)),
                    "live[" + std::to_string(j) + "] must have one count per node");
            counts.push_back(live[j].data());
        }
        return counts;
    }

    void check_nodes(const std::int32_t* nodes, std::size_t count, int level, std::int32_t least,
                     const char* name) const {
        const std::int64_t size = shape_.level_size(level);
        for (std::size_t i = 0; i < count; ++i)
            if (nodes[i] < least || nodes[i] >= size)
                throw std::invalid_argument(std::string(name) + " holds node " + std::to_string(nodes[i]) +
                                            " of level " + std::to_string(level) + "; its nodes are 0.." +
                                            std::to_string(size - 1));
    }

    // A copy of what was checked, as Python code may change an array while the workers read it.
    Leaves checked_nodes(const Array<std::int32_t, 2>& nodes, int level, std::int32_t least, const char* name) const {
        Leaves own(nodes.data(), nodes.data() + nodes.size());
        check_nodes(own.data(), own.size(), level, least, name);
        return own;
    }

    Leaves checked_history(const Array<std::int32_t, 2>& history) const {
        require(history.shape(1) == static_cast<std::size_t>(model_.history_length),
                "history has " + std::to_string(history.shape(1)) + " columns; the windows cover " +
                    std::to_string(model_.history_length));
        return checked_nodes(history, shape_.depth, -1, "history");
    }

    Excluded checked_excluded(const Array<std::int64_t, 1>& indptr, const Array<std::int32_t, 1>& banned,
                              std::size_t rows) const {
        const Excluded own{{indptr.data(), indptr.data() + indptr.shape(0)}, banned};
        require(own.indptr.size() == rows + 1 && own.indptr.front() == 0 &&
                    own.indptr.back() == static_cast<std::int64_t>(banned.shape(0)),
                "indptr does not match the excluded leaves");
        for (std::size_t row = 0; row < rows; ++row) require(own.indptr[row] <= own.indptr[row + 1], "indptr decreases");
        check_nodes(banned.data(), banned.shape(0), shape_.depth, 0, "excluded");
        for (std::size_t row = 0; row < rows; ++row)
            for (std::int64_t i = own.indptr[row] + 1; i < own.indptr[row + 1]; ++i)
                require(banned.data()[i - 1] < banned.data()[i], "excluded leaves must ascend within a row");
        return own;
    }

    Leaves open_of(const Counts& live) const {
        const ReleasedGil released;
        return open_leaves(shape_, live);
    }

    // Runs `work(worker, row, query)` for every row without the GIL, on at most as many threads as workers.
    template <class Work>
    void run(const Leaves& histories, Work&& work) {
        const std::int64_t length = model_.history_length, rows = static_cast<std::int64_t>(histories.size()) / length;
        Signals signals(rows > 1);
        const ReleasedGil released;
        parallel_rows(rows, workers_->most(), [&](int thread, std::int64_t row) {
            if (thread == 0) signals.check();  // the caller's thread
            const Workers::Lease worker(*workers_);
            work(*worker, row, Query{histories.data() + row * length, nullptr, 0});
        });
    }

    // Searches every row now, or returns the `Task` that searches the only row later. `work` owns what it reads.
    template <class Work>
    nb::object search(Leaves histories, std::int64_t k, Excluded excluded, const Work& work, bool later) {
        const std::size_t rows = excluded.indptr.size() - 1, columns = static_cast<std::size_t>(k);
        auto [leaves, leaves_owner] = owned<std::int32_t>(rows, columns);
        auto [scores, scores_owner] = owned<float>(rows, columns);
        auto [scored, scored_owner] = owned<std::int64_t>(rows);
        const auto found = nb::make_tuple(Result<std::int32_t, 2>(leaves, {rows, columns}, leaves_owner),
                                          Result<float, 2>(scores, {rows, columns}, scores_owner),
                                          Result<std::int64_t, 1>(scored, {rows}, scored_owner));
        const auto fill = [=, leaves = leaves, scores = scores, scored = scored](
                              const Excluded& excluded, Worker& worker, std::int64_t row, Query query) {
            query.banned = excluded.leaves.data() + excluded.indptr[row];
            query.num_banned = excluded.indptr[row + 1] - excluded.indptr[row];
            scored[row] = work(worker, query, leaves + row * columns, scores + row * columns);
        };
        if (!later) {
            run(histories, [&](Worker& worker, std::int64_t row, const Query& query) { fill(excluded, worker, row, query); });
            return found;
        }
        require(rows == 1, "a task searches one row");
        // It keeps this searcher alive.
        return nb::cast(new Task(found, [self = nb::find(*this), this, fill, histories = std::move(histories),
                                         excluded = std::move(excluded)] {
                            const Workers::Lease worker(*workers_);
                            fill(excluded, *worker, 0, Query{histories.data(), nullptr, 0});
                        }), nb::rv_policy::take_ownership);
    }

    Array<float, 2> nodes_;  // keeps the caller's array alive; not copied, as it is the largest
    std::optional<SimilarityArrays> similarity_;  // likewise
    std::optional<NeighbourArrays> neighbours_;   // likewise
    std::optional<LightArrays> light_;            // likewise
    bool by_path_;
    const SearchKernels& kernels_;
    const LightKernels& light_kernels_;
    TreeShape shape_;
    Model model_;
    Precision precision_ = Precision::float32;
    std::unique_ptr<AmxModel> amx_;
    std::unique_ptr<Workers> workers_;
};

}  // namespace

void register_search(nb::module_& module) {
    nb::class_<Searcher>(module, "Searcher", "Searches a tree with a DIN scorer; see beamwood.kernels.search.")
        .def(nb::init<Array<float, 2>, std::vector<LayerArrays>, Array<std::int64_t, 1>, ShapeNumbers,
                      const std::string&, const std::string&, bool, int, std::optional<SimilarityArrays>,
                      std::optional<NeighbourArrays>, std::optional<LightArrays>, int>(),
             nb::arg("nodes").noconvert(), nb::arg("layers").noconvert(), nb::arg("windows").noconvert(),
             nb::arg("shape"), nb::arg("level"), nb::arg("precision"), nb::arg("by_path"), nb::arg("table_nodes"),
             nb::arg("similarity").noconvert().none(), nb::arg("neighbours").noconvert().none(),
             nb::arg("light").noconvert().none(), nb::arg("threads"))
        .def("steered", &Searcher::steered, nb::arg("history").noconvert(), nb::arg("way"), nb::arg("k"),
             nb::arg("live").noconvert(), nb::arg("indptr").noconvert(), nb::arg("banned").noconvert(),
             nb::arg("later") = false)
        .def("visit", &Searcher::visit, nb::arg("history").noconvert(), nb::arg("beam_width"), nb::arg("steered"),
             nb::arg("most"), nb::arg("offsets").noconvert(), nb::arg("live").noconvert())
        .def("beam", &Searcher::beam, nb::arg("history").noconvert(), nb::arg("beam_width"), nb::arg("k"),
             nb::arg("live").noconvert(), nb::arg("indptr").noconvert(), nb::arg("banned").noconvert(),
             nb::arg("later") = false)
        .def("exact", &Searcher::exact, nb::arg("history").noconvert(), nb::arg("k"), nb::arg("live").noconvert(),
             nb::arg("indptr").noconvert(), nb::arg("banned").noconvert())
        .def("score", &Searcher::score, nb::arg("history").noconvert(), nb::arg("level"), nb::arg("nodes").noconvert())
        .def("queue", &Searcher::queue);
}

}  // namespace beamwood
