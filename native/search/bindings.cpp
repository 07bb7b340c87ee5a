// beamwood._native.Searcher. The arguments of a search are checked here, its arrays in search/arrays.cpp.
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <memory>
#include <optional>
#include <stdexcept>
#include <tuple>

#include "common/border.hpp"
#include "common/cpu.hpp"
#include "common/parallel.hpp"
#include "search/arrays.hpp"
#include "search/background.hpp"
#include "search/beam.hpp"
#include "search/workers.hpp"

namespace beamwood {
namespace {

// Beam width, judged nodes, whether every level is judged, and whether seen leaves are candidates.
using WayNumbers = std::tuple<std::int64_t, std::int64_t, bool, bool>;

// Copies of histories and of row bounds, taken before the checks: another thread may write to the caller's arrays
// during a search.
using Leaves = std::vector<std::int32_t>;
struct Excluded {
    std::vector<std::int64_t> indptr;
    Array<std::int32_t, 1> leaves;  // the caller's own; only compared, never used as indices
};

class Searcher {
public:
    Searcher(Array<float, 2> nodes, std::vector<LayerArrays> layers, Array<std::int64_t, 1> windows,
             ShapeNumbers shape, const std::string& level, const std::string& precision, bool by_path, int table_nodes,
             std::optional<SimilarityArrays> similarity, std::optional<NeighbourArrays> neighbours, std::optional<LightArrays> light, int threads)
        : arrays_{nodes, similarity, neighbours, light}, by_path_(by_path),
          kernels_(*BEAMWOOD_PICK_KERNELS(search_kernels, choose_level(level))),
          light_kernels_(*BEAMWOOD_PICK_KERNELS(light_kernels, choose_level(level))) {
        require(!by_path || !light, "a light head is not supported with by_path");
        shape_ = shape_of(shape, nodes.shape(0));
        model_ = model_of(arrays_, layers, windows);
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
    static void require_count(std::int64_t count, const std::string& name) {
        require(1 <= count && count <= MOST, name + "=" + std::to_string(count) + " is outside 1..2147483648");
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

    ModelArrays arrays_;
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
