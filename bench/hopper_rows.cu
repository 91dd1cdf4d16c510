/* Times prefill on a CUDA device over a table of shapes and judges it: one line a shape with the time, the fastest peer's, the
 * share of the floor, the error against a float64 token recurrence and the workspace; the geometric mean and the worst row last.
 *
 *   hopper_rows [--table FILE] [--regime standard|weak|strong|all] [--filter TEXT] [--repeat N] [--matmul TFLOPS] [--no-error]
 *
 * A time is the median over replays of a captured graph of several calls, whose inputs rotate through more memory than the L2
 * cache has. The floor is the larger of the dense operations over --matmul and the bytes over the copy bandwidth, which is
 * measured at the start. */
#include "row_inputs.cuh"
#include "row_judge.cuh"
#include "row_table.h"

#include <gdn/gdn_cuda.h>

#include <algorithm>
#include <cuda_runtime.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

namespace
{

constexpr int64_t kRotated = int64_t{250} << 20; /* bytes of inputs between two uses of the same ones */
constexpr int kMostSets = 6;
constexpr int kFewestCalls = 6; /* in a graph */

struct Settings {
    const char *table = GDN_BENCH_DATA "/h200_peers.tsv";
    const char *filter = "";
    const char *regime = "all";
    int repeat = 5;
    double matmul = 786.0;
    bool judged = true;
};

/* Ends the program. */
[[noreturn]] void fail(const char *what, const char *why)
{
    fprintf(stderr, "hopper_rows: %s: %s\n", what, why);
    exit(1);
}

void check(cudaError_t error, const char *what)
{
    if (error != cudaSuccess) {
        fail(what, cudaGetErrorString(error));
    }
}

void check(gdn_status status, const char *what)
{
    if (status != GDN_OK) {
        fail(what, gdn_last_error());
    }
}

/* One allocation, handed out piece by piece. */
class Arena
{
  public:
    explicit Arena(size_t bytes)
    {
        check(cudaMalloc(&data_, bytes), "device memory");
    }
    Arena(const Arena &) = delete;
    Arena &operator=(const Arena &) = delete;
    ~Arena()
    {
        cudaFree(data_);
    }
    void clear()
    {
        used_ = 0;
    }
    template <typename T> T *take(int64_t count)
    {
        char *const at = static_cast<char *>(data_) + used_;
        used_ += padded(count * static_cast<int64_t>(sizeof(T)));
        return reinterpret_cast<T *>(at);
    }
    static size_t padded(int64_t bytes)
    {
        return static_cast<size_t>((bytes + 1023) / 1024 * 1024);
    }

  private:
    void *data_ = nullptr;
    size_t used_ = 0;
};

struct Set {
    __nv_bfloat16 *q, *k, *v, *o;
    float *log_decay, *beta, *final_state;
};

int64_t set_bytes(const row &r)
{
    const int64_t tokens = row_tokens(&r);
    return tokens * (r.num_k_heads * 4 + r.num_v_heads * 4) * kDim + tokens * r.num_v_heads * 8;
}

int set_count(const row &r)
{
    return static_cast<int>(std::min<int64_t>(kMostSets, kRotated / set_bytes(r) + 1));
}

/* Everything a row takes, its workspace aside. */
size_t row_bytes(const row &r)
{
    const int64_t states = int64_t{4} * r.num_seqs * r.num_v_heads * kDim * kDim;
    return set_count(r) * (Arena::padded(set_bytes(r) + states) + size_t{16} * 1024) + (size_t{1} << 20);
}

gdn_problem problem_of(const row &r)
{
    gdn_problem problem;
    check(gdn_problem_init(&problem, r.num_k_heads, r.num_v_heads, kDim, kDim), "gdn_problem_init");
    problem.q.dtype = problem.k.dtype = problem.v.dtype = problem.o.dtype = GDN_DTYPE_BF16;
    problem.max_seqs = r.num_seqs;
    problem.max_tokens = row_tokens(&r);
    problem.max_seqlen = row_longest(&r);
    return problem;
}

Set make_set(Arena *arena, const row &r, uint32_t seed)
{
    const int64_t tokens = row_tokens(&r), k_vectors = tokens * r.num_k_heads, v_vectors = tokens * r.num_v_heads;
    const auto blocks = [](int64_t warps) { return static_cast<unsigned>((warps + 7) / 8); };
    Set set;
    set.q = arena->take<__nv_bfloat16>(k_vectors * kDim);
    set.k = arena->take<__nv_bfloat16>(k_vectors * kDim);
    set.v = arena->take<__nv_bfloat16>(v_vectors * kDim);
    set.o = arena->take<__nv_bfloat16>(v_vectors * kDim);
    set.log_decay = arena->take<float>(v_vectors);
    set.beta = arena->take<float>(v_vectors);
    set.final_state = arena->take<float>(int64_t{r.num_seqs} * r.num_v_heads * kDim * kDim);
    fill_vectors<<<blocks(k_vectors), 256>>>(set.q, k_vectors, seed, true);
    fill_vectors<<<blocks(k_vectors), 256>>>(set.k, k_vectors, seed + 1, true);
    fill_vectors<<<blocks(v_vectors), 256>>>(set.v, v_vectors, seed + 2, false);
    check(cudaGetLastError(), "inputs");
    return set;
}

void make_gates(const Set &set, const row &r, uint32_t seed, Regime regime)
{
    const int64_t count = row_tokens(&r) * r.num_v_heads;
    fill_gates<<<static_cast<unsigned>((count + 255) / 256), 256>>>(set.log_decay, set.beta, count, r.num_v_heads, seed,
                                                                    regime);
    check(cudaGetLastError(), "gates");
}

/* Median milliseconds of one call. */
double time_calls(const gdn_plan *plan, const std::vector<gdn_prefill_args> &sets, int repeat, cudaStream_t stream)
{
    const int count = static_cast<int>(sets.size());
    const int calls = count * std::max(1, kFewestCalls / count);
    cudaGraph_t graph;
    cudaGraphExec_t replay;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    for (int i = 0; i < calls; ++i) {
        check(gdn_prefill_cuda(plan, &sets[i % count], stream), "gdn_prefill");
    }
    check(cudaStreamEndCapture(stream, &graph), "capture");
    check(cudaGraphInstantiate(&replay, graph, 0), "graph");
    cudaEvent_t start, stop;
    check(cudaEventCreate(&start), "event");
    check(cudaEventCreate(&stop), "event");
    check(cudaGraphLaunch(replay, stream), "graph");
    std::vector<float> times;
    for (int i = 0; i < repeat; ++i) {
        float ms = 0.0f;
        check(cudaEventRecord(start, stream), "event");
        check(cudaGraphLaunch(replay, stream), "graph");
        check(cudaEventRecord(stop, stream), "event");
        check(cudaEventSynchronize(stop), "replay");
        check(cudaEventElapsedTime(&ms, start, stop), "event");
        times.push_back(ms / static_cast<float>(calls));
    }
    cudaEventDestroy(start);
    cudaEventDestroy(stop);
    cudaGraphExecDestroy(replay);
    cudaGraphDestroy(graph);
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

/* Relative errors of o and of the final states in the first and the last value head. */
void judge_row(const row &r, const Set &set, const int64_t *cu_seqlens, Deviation *scratch, double *o, double *state)
{
    JudgeInputs in = {set.q,
                      set.k,
                      set.v,
                      set.log_decay,
                      set.beta,
                      set.o,
                      set.final_state,
                      cu_seqlens,
                      r.num_k_heads,
                      r.num_v_heads,
                      {0, r.num_v_heads - 1},
                      1.0 / sqrt(static_cast<double>(kDim))};
    Deviation found;
    check(cudaMemset(scratch, 0, sizeof(*scratch)), "judge");
    judge<<<static_cast<unsigned>(r.num_seqs * 2 * kDim / 4), 128>>>(in, r.num_seqs, scratch);
    check(cudaMemcpy(&found, scratch, sizeof(found), cudaMemcpyDeviceToHost), "judge");
    *o = sqrt(found.o_error / found.o_square);
    *state = sqrt(found.state_error / found.state_square);
}

/* The least time, in milliseconds: the chunked form's dense operations at 64 tokens a chunk, or the bytes that must move. */
double floor_of(const row &r, double tflops, double bandwidth)
{
    const double tokens = static_cast<double>(row_tokens(&r)), heads = r.num_v_heads;
    const double shared = heads / r.num_k_heads;
    const double operations = tokens * heads * (6.0 * kDim * kDim + 4.0 * 64 * kDim + 4.0 * 64 * kDim / shared);
    const double bytes = static_cast<double>(set_bytes(r)) + 4.0 * r.num_seqs * heads * kDim * kDim;
    return std::max(operations / (tflops * 1e12), bytes / bandwidth) * 1e3;
}

/* Bytes read and written in a second by a copy on the device. */
double copy_bandwidth(Arena *arena, cudaStream_t stream)
{
    constexpr int64_t kBytes = int64_t{1} << 30;
    arena->clear();
    char *const from = arena->take<char>(kBytes);
    char *const to = arena->take<char>(kBytes);
    cudaEvent_t start, stop;
    check(cudaEventCreate(&start), "event");
    check(cudaEventCreate(&stop), "event");
    float best = 1e9f;
    for (int i = 0; i < 5; ++i) {
        float ms = 0.0f;
        check(cudaEventRecord(start, stream), "event");
        check(cudaMemcpyAsync(to, from, kBytes, cudaMemcpyDeviceToDevice, stream), "copy");
        check(cudaEventRecord(stop, stream), "event");
        check(cudaEventSynchronize(stop), "copy");
        check(cudaEventElapsedTime(&ms, start, stop), "event");
        best = std::min(best, ms);
    }
    cudaEventDestroy(start);
    cudaEventDestroy(stop);
    return 2.0 * kBytes / (best * 1e-3);
}

struct Result {
    double ms;
    double ratio; /* the peer's time to this; 0: no peer */
};

/* What all rows of a regime come to. */
void summarise(const char *regime, const std::vector<const row *> &rows, const std::vector<Result> &results,
               double worst_o, double worst_state, size_t workspace)
{
    double logs = 0.0, worst = 0.0;
    const row *worst_row = nullptr;
    int compared = 0, lost = 0, cliffs = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
        for (size_t j = 0; j < rows.size(); ++j) {
            if (row_is_double(rows[i], rows[j]) && results[j].ms < results[i].ms) {
                printf("# cliff: %s takes %.4f ms, %s %.4f\n", rows[j]->name, results[j].ms, rows[i]->name,
                       results[i].ms);
                ++cliffs;
            }
        }
        if (results[i].ratio > 0.0) {
            logs += log(results[i].ratio);
            lost += results[i].ratio < 1.0;
            if (compared++ == 0 || results[i].ratio < worst) {
                worst = results[i].ratio;
                worst_row = rows[i];
            }
        }
    }
    printf("# %s: %zu rows, errors at most o %.2e state %.2e, workspace at most %zu MiB, cliffs %d", regime,
           rows.size(), worst_o, worst_state, workspace >> 20, cliffs);
    if (compared > 0) {
        printf("; %d with a peer: geometric mean %.3f, %d lost, worst %.2f (%s)", compared, exp(logs / compared), lost,
               worst, worst_row->name);
    }
    printf("\n");
}

/* Shapes that a table of peers may not have, for each of its head configurations. */
int add_own_rows(row_table *table)
{
    static const char *const shapes[] = {"1x65536", "1x131072", "32x1024", "64x256",
                                         "64+8192+512+1+3000+777+256+2048+100+1500+4096+31+640+1024+5000+200+900+2500+"
                                         "128+1939"};
    const int32_t from_file = table->count;
    for (int32_t i = 0; i < from_file; ++i) {
        for (const char *shape : shapes) {
            const row from = table->rows[i];
            if (row_table_add(table, shape, from.num_k_heads, from.num_v_heads, 0.0) != 0) {
                return -1;
            }
            const row *const added = &table->rows[table->count - 1];
            for (int32_t j = 0; j < table->count - 1; ++j) {
                if (strcmp(table->rows[j].name, added->name) == 0) {
                    --table->count;
                    break;
                }
            }
        }
    }
    return 0;
}

/* Walks the rows in one regime. */
void walk(const Settings &settings, gdn_context *context, const std::vector<const row *> &rows, Regime regime,
          const char *name, Arena *arena, double bandwidth, cudaStream_t stream)
{
    std::vector<Result> results;
    double worst_o = 0.0, worst_state = 0.0;
    size_t workspace_most = 0;
    for (const row *r : rows) {
        const gdn_problem problem = problem_of(*r);
        gdn_plan *plan = nullptr;
        check(gdn_plan_create(&plan, context, &problem), r->name);
        char description[4096] = "";
        static const char kChosen[] = "implementation: ";
        (void)gdn_plan_describe(plan, description, sizeof(description), nullptr);
        const char *const line = strstr(description, kChosen);
        const char *const chosen = line != nullptr ? line + strlen(kChosen) : "?";

        arena->clear();
        const size_t workspace_size = gdn_plan_workspace_size(plan);
        void *workspace = nullptr;
        check(cudaMalloc(&workspace, workspace_size), "workspace");
        check(cudaMemset(workspace, 0xff, workspace_size), "workspace");
        std::vector<int64_t> offsets(1, 0);
        for (int32_t i = 0; i < r->num_seqs; ++i) {
            offsets.push_back(offsets.back() + r->lengths[i]);
        }
        int64_t *const cu_seqlens = arena->take<int64_t>(r->num_seqs + 1);
        Deviation *const deviation = arena->take<Deviation>(1);
        check(cudaMemcpy(cu_seqlens, offsets.data(), offsets.size() * sizeof(int64_t), cudaMemcpyHostToDevice),
              "cu_seqlens");
        std::vector<Set> sets;
        std::vector<gdn_prefill_args> calls;
        for (int i = 0; i < set_count(*r); ++i) {
            const uint32_t seed = 100 * static_cast<uint32_t>(i) + 1;
            sets.push_back(make_set(arena, *r, seed));
            make_gates(sets[i], *r, seed + 10, regime);
            gdn_prefill_args args;
            check(gdn_prefill_args_init(&args), "gdn_prefill_args_init");
            args.num_seqs = r->num_seqs;
            args.total_tokens = row_tokens(r);
            args.q = sets[i].q;
            args.k = sets[i].k;
            args.v = sets[i].v;
            args.o = sets[i].o;
            args.gate = sets[i].log_decay;
            args.beta = sets[i].beta;
            args.cu_seqlens = cu_seqlens;
            args.final_state = sets[i].final_state;
            args.workspace = workspace;
            args.workspace_size = workspace_size;
            calls.push_back(args);
        }
        check(cudaDeviceSynchronize(), "inputs");
        check(gdn_prefill_cuda(plan, &calls[0], stream), r->name);
        check(gdn_plan_check_cuda(plan, workspace, stream), r->name);
        double o = 0.0, state = 0.0;
        if (settings.judged) {
            judge_row(*r, sets[0], cu_seqlens, deviation, &o, &state);
        }
        Result result;
        result.ms = time_calls(plan, calls, settings.repeat, stream);
        result.ratio = r->peer_ms > 0.0 ? r->peer_ms / result.ms : 0.0;
        results.push_back(result);
        printf("%s\t%s\t%.4f\t%.3f\t%.2f\t%.0f%%\t%.2e\t%.2e\t%zu\t%.*s\n", name, r->name, result.ms, r->peer_ms,
               result.ratio, 100.0 * floor_of(*r, settings.matmul, bandwidth) / result.ms, o, state,
               workspace_size >> 20, static_cast<int>(strcspn(chosen, ",\n")), chosen);
        worst_o = std::max(worst_o, o);
        worst_state = std::max(worst_state, state);
        workspace_most = std::max(workspace_most, workspace_size);
        cudaFree(workspace);
        gdn_plan_destroy(&plan);
    }
    summarise(name, rows, results, worst_o, worst_state, workspace_most);
}

bool read_options(Settings *settings, int argc, char **argv)
{
    static const option options[] = {{"table", required_argument, nullptr, 't'},
                                     {"regime", required_argument, nullptr, 'r'},
                                     {"filter", required_argument, nullptr, 'f'},
                                     {"repeat", required_argument, nullptr, 'n'},
                                     {"matmul", required_argument, nullptr, 'm'},
                                     {"no-error", no_argument, nullptr, 'e'},
                                     {nullptr, 0, nullptr, 0}};
    for (int id = 0; (id = getopt_long(argc, argv, "", options, nullptr)) != -1;) {
        switch (id) {
        case 't':
            settings->table = optarg;
            break;
        case 'r':
            settings->regime = optarg;
            break;
        case 'f':
            settings->filter = optarg;
            break;
        case 'n':
            settings->repeat = atoi(optarg);
            break;
        case 'm':
            settings->matmul = atof(optarg);
            break;
        case 'e':
            settings->judged = false;
            break;
        default:
            return false;
        }
    }
    return optind == argc && settings->repeat > 0 && settings->matmul > 0.0;
}

} // namespace

int main(int argc, char **argv)
{
    setvbuf(stdout, nullptr, _IOLBF, 0); /* rows are there as they come, in a file too */
    Settings settings;
    if (!read_options(&settings, argc, argv)) {
        fprintf(stderr,
                "usage: hopper_rows [--table FILE] [--regime standard|weak|strong|all] [--filter TEXT] [--repeat N] "
                "[--matmul TFLOPS] [--no-error]\n");
        return 2;
    }
    static row_table table;
    const int bad = row_table_read(&table, settings.table);
    if (bad != 0 || add_own_rows(&table) != 0) {
        char why[64];
        snprintf(why, sizeof(why), bad > 0 ? "line %d is no row of a table" : "cannot be read, or has too many rows",
                 bad);
        fail(settings.table, why);
    }
    std::vector<const row *> rows;
    size_t bytes = size_t{3} << 30;
    for (int32_t i = 0; i < table.count; ++i) {
        if (strstr(table.rows[i].name, settings.filter) != nullptr) {
            rows.push_back(&table.rows[i]);
            bytes = std::max(bytes, row_bytes(table.rows[i]));
        }
    }

    gdn_context_options options;
    gdn_context *context = nullptr;
    check(gdn_context_options_init(&options), "gdn_context_options_init");
    options.backend = "cuda";
    check(gdn_context_create(&context, &options), "context");
    cudaDeviceProp device;
    cudaStream_t stream;
    check(cudaGetDeviceProperties(&device, 0), "device");
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    {
        Arena arena(bytes);
        const double bandwidth = copy_bandwidth(&arena, stream);
        printf("# %s, %d multiprocessors, copy %.0f GB/s, matmul taken as %.0f TFLOP/s, libgdn %s\n", device.name,
               device.multiProcessorCount, bandwidth * 1e-9, settings.matmul, gdn_version_string());
        printf("regime\theads, rows x tokens\tms\tbest peer, ms\tratio\tof the floor\to\tstate\tworkspace, MiB\tby\n");
        static const struct {
            const char *name;
            Regime regime;
        } regimes[] = {{"standard", Regime::kStandard}, {"weak", Regime::kWeak}, {"strong", Regime::kStrong}};
        for (const auto &regime : regimes) {
            if (strcmp(settings.regime, "all") == 0 || strcmp(settings.regime, regime.name) == 0) {
                walk(settings, context, rows, regime.regime, regime.name, &arena, bandwidth, stream);
            }
        }
    }
    cudaStreamDestroy(stream);
    gdn_context_destroy(&context);
    return 0;
}
