/* bench/collectives_mpi.c -- the peer: Open MPI, measured like `weft bench collectives`.  Built by collectives.sh. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_value(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static void run(int kind, long bytes, int self, int ranks, float *send, float *recv)
{
  int count = (int)(bytes / 4), each = count / ranks > 0 ? count / ranks : 1;
  switch (kind) {
  case 0: MPI_Allreduce(send, recv, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); break;
  case 1: MPI_Allgather(send, each, MPI_FLOAT, recv, each, MPI_FLOAT, MPI_COMM_WORLD); break;
  case 2: {
    int counts[256];
    for (int i = 0; i < ranks; i++) counts[i] = each;
    MPI_Reduce_scatter(send, recv, counts, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    break;
  }
  case 3: MPI_Alltoall(send, each, MPI_FLOAT, recv, each, MPI_FLOAT, MPI_COMM_WORLD); break;
  case 4: MPI_Bcast(send, count, MPI_FLOAT, 0, MPI_COMM_WORLD); break;
  case 5:
    if ((self ^ 1) < ranks)
      MPI_Sendrecv(send, count, MPI_FLOAT, self ^ 1, 0, recv, count, MPI_FLOAT, self ^ 1, 0, MPI_COMM_WORLD,
                   MPI_STATUS_IGNORE);
    break;
  default: MPI_Barrier(MPI_COMM_WORLD);
  }
}

int main(int argc, char **argv)
{
  static const char *const names[] = {"all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "send", "barrier"};
  int rank, ranks;

  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  long max = argc > 2 ? atol(argv[2]) : 16 << 20;
  double scale = argc > 3 ? atof(argv[3]) : 1; /* of the number of iterations */
  const char *ops = argc > 4 ? argv[4] : "";   /* a list of names; empty: all */
  size_t room = ((size_t)max + 8191) / 4096 * 4096;
  float *send = aligned_alloc(4096, room), *recv = aligned_alloc(4096, room);
  double *samples = calloc(4000, sizeof *samples);
  if (!send || !recv || !samples) return 1;
  memset(send, 0, room); /* memory that nobody wrote is one page of zeros, which is quick to read */
  memset(recv, 0, room);
  for (int k = 0; k < 7; k++)
    for (long bytes = 64; bytes <= max && (!*ops || strstr(ops, names[k])); bytes = bytes == 64         ? 4096
                                                                                    : bytes == 16 << 20 ? 64 << 20
                                                                                                        : bytes * 16) {
      int n = bytes <= 4096 ? 2000 : bytes <= 65536 ? 500 : bytes <= 1 << 20 ? 100 : bytes <= 16 << 20 ? 12 : 4;
      n = n * scale > 3 ? (int)(n * scale) : 3;
      n = n < 4000 ? n : 4000;
      for (int i = -(n / 10 > 2 ? n / 10 : 2); i < n; i++) {
        if (i == 0) MPI_Barrier(MPI_COMM_WORLD);
        double begin = MPI_Wtime();
        run(k, bytes, rank, ranks, send, recv);
        if (i >= 0) samples[i] = (MPI_Wtime() - begin) * 1e6;
      }
      qsort(samples, (size_t)n, sizeof *samples, by_value);
      if (rank == 0)
        printf("%-15s %-12s ranks %d  bytes %9ld  iters %5d  p50 %11.2f us  p99 %11.2f us  %8.3f GB/s\n", names[k],
               argc > 1 ? argv[1] : "mpi", ranks, k == 6 ? 0 : bytes, n, samples[n / 2], samples[n - 1 - n / 100],
               (double)bytes / samples[n / 2] / 1e3);
      if (k == 6) break;
    }
  MPI_Finalize();
  return 0;
}
