/* Communication kernels of parallel programs, and an account of what each rank sent.
 *
 *     mpi_kernels REPORTS fft SIDE ROUNDS PAUSE_MS        SIDE^3 complex numbers, there and back
 *     mpi_kernels REPORTS alltoall BYTES ROUNDS PAUSE_MS  BYTES from each rank to each other
 *     mpi_kernels REPORTS allreduce BYTES ROUNDS PAUSE_MS BYTES of numbers, summed over all ranks
 *     mpi_kernels REPORTS multigrid BYTES ROUNDS PAUSE_MS faces of ever coarser grids, as NPB's MG
 *     mpi_kernels REPORTS sweeps BYTES ROUNDS PAUSE_MS    faces, then lines solved there and back
 *
 * A pause after each round stands for computing. Rank 0 makes REPORTS/begun once all have met, and
 * every rank writes REPORTS/rank-N.json at its end. MPI's profiling interface counts what leaves a rank for others, also where FFTW calls MPI.
 */
#include <errno.h>
#include <fftw3-mpi.h>
#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Rounding errors of a transform there and back stay far below this; a lost number does not. */
#define MOST_ERROR 1e-9

static unsigned long long sent_bytes;
static double inside_s; /* of MPI calls that move data */

/* Open MPI calls this when it has nothing to do, and would otherwise spin: ranks share processors
 * with the switches that carry their bytes. */
int sched_yield(void)
{
    struct timespec while_idle = {0, 1000000};
    return nanosleep(&while_idle, NULL);
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* --- what is sent, counted -------------------------------------------------------------------- */

static void count(MPI_Comm comm, int destination, int items, MPI_Datatype type)
{
    int rank, bytes;
    PMPI_Comm_rank(comm, &rank);
    PMPI_Type_size(type, &bytes);
    if (destination != rank && destination != MPI_PROC_NULL)
        sent_bytes += (unsigned long long)items * (unsigned long long)bytes;
}

int MPI_Alltoall(const void *out, int out_items, MPI_Datatype out_type, void *in, int in_items,
                 MPI_Datatype in_type, MPI_Comm comm)
{
    int ranks;
    PMPI_Comm_size(comm, &ranks);
    for (int other = 0; other < ranks; other++)
        count(comm, other, out_items, out_type);
    double began_s = now_s();
    int result = PMPI_Alltoall(out, out_items, out_type, in, in_items, in_type, comm);
    inside_s += now_s() - began_s;
    return result;
}

int MPI_Alltoallv(const void *out, const int *out_items, const int *out_at, MPI_Datatype out_type,
                  void *in, const int *in_items, const int *in_at, MPI_Datatype in_type,
                  MPI_Comm comm)
{
    int ranks;
    PMPI_Comm_size(comm, &ranks);
    for (int other = 0; other < ranks; other++)
        count(comm, other, out_items[other], out_type);
    double began_s = now_s();
    int result =
        PMPI_Alltoallv(out, out_items, out_at, out_type, in, in_items, in_at, in_type, comm);
    inside_s += now_s() - began_s;
    return result;
}

/* Counted as a ring sends: each rank passes on every part of the numbers twice, but for its own. */
int MPI_Allreduce(const void *out, void *in, int items, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    int ranks, bytes;
    PMPI_Comm_size(comm, &ranks);
    PMPI_Type_size(type, &bytes);
    sent_bytes += 2ull * (unsigned long long)(ranks - 1) * (unsigned long long)(items / ranks) *
                  (unsigned long long)bytes;
    double began_s = now_s();
    int result = PMPI_Allreduce(out, in, items, type, op, comm);
    inside_s += now_s() - began_s;
    return result;
}

int MPI_Sendrecv(const void *out, int out_items, MPI_Datatype out_type, int to, int out_tag,
                 void *in, int in_items, MPI_Datatype in_type, int from, int in_tag, MPI_Comm comm,
                 MPI_Status *status)
{
    count(comm, to, out_items, out_type);
    double began_s = now_s();
    int result = PMPI_Sendrecv(out, out_items, out_type, to, out_tag, in, in_items, in_type, from,
                               in_tag, comm, status);
    inside_s += now_s() - began_s;
    return result;
}

/* --- kernels: each runs some rounds and tells whether what arrived is right -------------------- */

typedef struct {
    const char *reports;
    long size;
    long rounds;
    double pause_s;
} Work;

/* When all ranks had met; from here on, what they send counts. */
static double begin(const Work *work)
{
    char path[4096];
    int rank;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Barrier(MPI_COMM_WORLD);
    if (!rank) {
        snprintf(path, sizeof path, "%s/begun", work->reports);
        FILE *file = fopen(path, "w");
        if (file)
            fclose(file);
    }
    sent_bytes = 0;
    inside_s = 0;
    return now_s();
}

static void compute(const Work *work)
{
    struct timespec left;
    left.tv_sec = (time_t)work->pause_s;
    left.tv_nsec = (long)(1e9 * (work->pause_s - (double)left.tv_sec));
    while (nanosleep(&left, &left) && errno == EINTR)
        ;
}

/* A value in [0, 1) that the place of a number alone decides. */
static double value_at(uint64_t place)
{
    place = (place + 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
    place = (place ^ (place >> 31)) * 0x94d049bb133111ebu;
    return (double)((place ^ (place >> 31)) >> 11) * 0x1p-53;
}

typedef struct {
    ptrdiff_t allocated, planes, first;
    fftw_complex *data;
    fftw_plan there, back;
} Cube;

static int make_cube(Cube *cube, ptrdiff_t side)
{
    ptrdiff_t transposed, first_transposed;
    cube->allocated = fftw_mpi_local_size_3d_transposed(side, side, side, MPI_COMM_WORLD,
                                                        &cube->planes, &cube->first, &transposed,
                                                        &first_transposed);
    cube->data = fftw_alloc_complex((size_t)cube->allocated);
    if (!cube->data)
        return 0;
    cube->there = fftw_mpi_plan_dft_3d(side, side, side, cube->data, cube->data, MPI_COMM_WORLD,
                                       FFTW_FORWARD, FFTW_ESTIMATE | FFTW_MPI_TRANSPOSED_OUT);
    cube->back = fftw_mpi_plan_dft_3d(side, side, side, cube->data, cube->data, MPI_COMM_WORLD,
                                      FFTW_BACKWARD, FFTW_ESTIMATE | FFTW_MPI_TRANSPOSED_IN);
    return cube->there && cube->back;
}

static double largest_error(const Cube *cube, ptrdiff_t numbers, ptrdiff_t before)
{
    double largest = 0;
    for (ptrdiff_t i = 0; i < numbers; i++) {
        largest = fmax(largest, fabs(cube->data[i][0] - value_at((uint64_t)(before + i))));
        largest = fmax(largest, fabs(cube->data[i][1]));
    }
    return largest;
}

static int fft(const Work *work, double *began_s)
{
    ptrdiff_t side = work->size;
    Cube cube;
    fftw_mpi_init();
    if (!make_cube(&cube, side))
        return 0;
    ptrdiff_t numbers = cube.planes * side * side, before = cube.first * side * side;
    for (ptrdiff_t i = 0; i < numbers; i++) {
        cube.data[i][0] = value_at((uint64_t)(before + i));
        cube.data[i][1] = 0;
    }
    double scale = 1 / ((double)side * (double)side * (double)side);
    *began_s = begin(work);
    for (long round = 0; round < work->rounds; round++) {
        fftw_execute(cube.there);
        fftw_execute(cube.back);
        for (ptrdiff_t i = 0; i < numbers; i++) {
            cube.data[i][0] *= scale;
            cube.data[i][1] *= scale;
        }
        compute(work);
    }
    return largest_error(&cube, numbers, before) < MOST_ERROR;
}

static unsigned char byte_of(long round, int from, int to, long i)
{
    return (unsigned char)(round * 31 + from * 7 + to * 13 + i);
}

static int alltoall(const Work *work, double *began_s)
{
    int rank, ranks, right = 1;
    long bytes = work->size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    unsigned char *out = malloc((size_t)ranks * (size_t)bytes);
    unsigned char *in = malloc((size_t)ranks * (size_t)bytes);
    if (!out || !in)
        return 0;
    *began_s = begin(work);
    for (long round = 0; round < work->rounds; round++) {
        for (int to = 0; to < ranks; to++)
            for (long i = 0; i < bytes; i++)
                out[to * bytes + i] = byte_of(round, rank, to, i);
        MPI_Alltoall(out, (int)bytes, MPI_BYTE, in, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
        for (int from = 0; from < ranks; from++)
            for (long i = 0; i < bytes; i++)
                right &= in[from * bytes + i] == byte_of(round, from, rank, i);
        compute(work);
    }
    free(out);
    free(in);
    return right;
}

static int allreduce(const Work *work, double *began_s)
{
    int rank, ranks, right = 1;
    int items = (int)(work->size / (long)sizeof(double));
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    double *out = calloc((size_t)items, sizeof *out);
    double *in = calloc((size_t)items, sizeof *in);
    if (!out || !in)
        return 0;
    *began_s = begin(work);
    for (long round = 0; round < work->rounds; round++) {
        for (int i = 0; i < items; i++)
            out[i] = (double)(i % 1009 + rank + round);
        MPI_Allreduce(out, in, items, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        for (int i = 0; i < items; i++) /* whole numbers: the sum is exact */
            right &= in[i] == (double)ranks * (double)(i % 1009 + round) +
                                  (double)ranks * (double)(ranks - 1) / 2;
        compute(work);
    }
    free(out);
    free(in);
    return right;
}

/* --- neighbours of a grid of ranks in three dimensions, whose ends meet --------------------------- */

#define DIMENSIONS 3

typedef struct {
    MPI_Comm comm;
    int before[DIMENSIONS], after[DIMENSIONS];
    unsigned char *out, *in;
} Grid;

static int make_grid(Grid *grid, long bytes)
{
    int ranks, sides[DIMENSIONS] = {0}, round[DIMENSIONS] = {1, 1, 1};
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Dims_create(ranks, DIMENSIONS, sides);
    MPI_Cart_create(MPI_COMM_WORLD, DIMENSIONS, sides, round, 0, &grid->comm);
    for (int d = 0; d < DIMENSIONS; d++)
        MPI_Cart_shift(grid->comm, d, 1, &grid->before[d], &grid->after[d]);
    grid->out = malloc((size_t)bytes);
    grid->in = malloc((size_t)bytes);
    return grid->out && grid->in;
}

/* Sends ``bytes`` to one neighbour and takes as many from the opposite one. */
static int pass(const Grid *grid, long round, int to, int from, long bytes)
{
    int rank, right = 1;
    MPI_Comm_rank(grid->comm, &rank);
    for (long i = 0; i < bytes; i++)
        grid->out[i] = byte_of(round, rank, to, i);
    MPI_Sendrecv(grid->out, (int)bytes, MPI_BYTE, to, 0, grid->in, (int)bytes, MPI_BYTE, from, 0,
                 grid->comm, MPI_STATUS_IGNORE);
    for (long i = 0; i < bytes; i++)
        right &= grid->in[i] == byte_of(round, from, rank, i);
    return right;
}

static int pass_faces(const Grid *grid, long round, long bytes)
{
    int right = 1;
    for (int d = 0; d < DIMENSIONS; d++) {
        right &= pass(grid, round, grid->after[d], grid->before[d], bytes);
        right &= pass(grid, round, grid->before[d], grid->after[d], bytes);
    }
    return right;
}

/* The faces of a grid, and of grids with half the points in each dimension, down to one byte. */
static int multigrid(const Work *work, double *began_s)
{
    Grid grid;
    int right = 1;
    if (!make_grid(&grid, work->size))
        return 0;
    *began_s = begin(work);
    for (long round = 0; round < work->rounds; round++) {
        for (long bytes = work->size; bytes; bytes /= 4)
            right &= pass_faces(&grid, round, bytes);
        compute(work);
    }
    return right;
}

/* The faces, then lines in each dimension, solved there and back from one rank to the next: a third
 * of a face at each of (root of the ranks) - 1 steps there, and a sixth back. */
static int sweeps(const Work *work, double *began_s)
{
    Grid grid;
    int ranks, right = 1;
    if (!make_grid(&grid, work->size))
        return 0;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int steps = (int)sqrt((double)ranks) - 1;
    *began_s = begin(work);
    for (long round = 0; round < work->rounds; round++) {
        right &= pass_faces(&grid, round, work->size);
        for (int d = 0; d < DIMENSIONS; d++) {
            for (int step = 0; step < steps; step++)
                right &= pass(&grid, round, grid.after[d], grid.before[d], work->size / 3);
            for (int step = 0; step < steps; step++)
                right &= pass(&grid, round, grid.before[d], grid.after[d], work->size / 6);
        }
        compute(work);
    }
    return right;
}

/* --- the rank ---------------------------------------------------------------------------------- */

static int write_report(const char *directory, double began_s, double ended_s, int right)
{
    char path[4096], host[256];
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (gethostname(host, sizeof host))
        return 0;
    snprintf(path, sizeof path, "%s/rank-%d.json", directory, rank);
    FILE *file = fopen(path, "w");
    if (!file)
        return 0;
    fprintf(file,
            "{\"rank\": %d, \"host\": \"%s\", \"began_s\": %.6f, \"ended_s\": %.6f, "
            "\"inside_s\": %.6f, \"sent_bytes\": %llu, \"verified\": %s}\n",
            rank, host, began_s, ended_s, inside_s, sent_bytes, right ? "true" : "false");
    return !fclose(file);
}

static int number(const char *text, double least, double *value)
{
    char *end;
    *value = strtod(text, &end);
    return end != text && !*end && *value >= least;
}

int main(int count, char **words)
{
    double size, rounds, pause_ms, began_s = 0;
    static const struct {
        const char *name;
        int (*run)(const Work *, double *);
    } kernels[] = {{"fft", fft},
                 {"alltoall", alltoall},
                 {"allreduce", allreduce},
                 {"multigrid", multigrid}, {"sweeps", sweeps}, {NULL, NULL}};
    int chosen = 0;
    while (count == 6 && kernels[chosen].name && strcmp(words[2], kernels[chosen].name))
        chosen++;
    if (count != 6 || !kernels[chosen].name || !number(words[3], 1, &size) ||
        !number(words[4], 1, &rounds) || !number(words[5], 0, &pause_ms)) {
        fprintf(stderr, "usage: mpi_kernels REPORTS fft|alltoall|allreduce|multigrid|sweeps SIZE "
                        "ROUNDS PAUSE_MS\n");
        return 2;
    }
    Work work = {words[1], (long)size, (long)rounds, pause_ms / 1e3};
    MPI_Init(&count, &words);
    int right = kernels[chosen].run(&work, &began_s);
    PMPI_Barrier(MPI_COMM_WORLD);
    int written = write_report(words[1], began_s, now_s(), right);
    if (!right || !written)
        fprintf(stderr, "%s\n", written ? "what arrived is wrong" : "no report could be written");
    MPI_Finalize();
    return right && written ? 0 : 1;
}
