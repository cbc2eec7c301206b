/* bench/collectives_demo.c -- one rank of the demonstration that collectives_demo.sh runs.  Arguments: directory rank
 * ranks. */
#include <config.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "weft/collective.h"

static weft_status *step(weft_comm *comm, const char *instruction)
{
  float x[256], sum[256];
  for (int i = 0; i < 256; i++) x[i] = (float)(weft_comm_rank(comm) + i);
  weft_coll_op op = {.kind = WEFT_ALL_REDUCE, .dtype = WEFT_F32, .reduction = WEFT_SUM, .count = 256, .send = x, .recv = sum};
  weft_coll_call call = {.site = {.executable = "jit_step", .instruction = instruction, .source = "train.py:41"},
                         .deadline = weft_deadline_after_ms(1000)};
  return weft_coll_run(comm, &op, &call);
}

static weft_status *run(const char *directory, int rank, int ranks)
{
  WEFT_AUTO(weft_kv) kv = NULL;
  WEFT_AUTO(weft_comm) comm = NULL;

  WEFT_TRY(weft_kv_file_new(directory, &kv));
  weft_comm_spec spec = {.kv = kv, .name = "demo", .size = ranks, .ranks = &rank, .rank_count = 1};
  WEFT_TRY(weft_comm_create(&spec, &comm));
  WEFT_TRY(step(comm, "all-reduce.1"));
  printf("all-reduce.1 done\n");
  if (rank == ranks - 1) {
    printf("asleep for three seconds\n");
    sleep(3);
  }
  WEFT_TRY(step(comm, "all-reduce.2"));
  printf("all-reduce.2 done\n");
  return NULL;
}

int main(int argc, char **argv)
{
  if (argc != 4) return 2;
  weft_status *st = run(argv[1], atoi(argv[2]), atoi(argv[3]));
  if (!st) return 0;
  printf("%s\n", weft_status_text(st, false));
  weft_status_free(st);
  return 1;
}
