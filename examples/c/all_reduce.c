/* examples/c/all_reduce.c -- sums an array over processes that meet in a directory.
 *   all_reduce DIRECTORY RANK SIZE      start it SIZE times, with ranks 0 ... SIZE - 1; the directory must be fresh */
#include <stdio.h>
#include <stdlib.h>

#include <weft/collective.h>

enum { COUNT = 4 };

static weft_status *all_reduce(const char *directory, int rank, int size)
{
  float mine[COUNT], sum[COUNT];
  WEFT_AUTO(weft_kv) kv = NULL; /* destroyed on every way out, after the communicator */
  WEFT_AUTO(weft_comm) comm = NULL;
  weft_deadline deadline = weft_deadline_after_ms(30000);

  WEFT_TRY(weft_kv_file_new(directory, &kv));
  WEFT_TRY(weft_comm_create(
    &(weft_comm_spec){.kv = kv, .name = "example", .size = size, .ranks = &rank, .rank_count = 1, .deadline = deadline},
    &comm));
  for (int i = 0; i < COUNT; i++) mine[i] = (float)(rank + i);
  WEFT_TRY(weft_coll_run(
    comm,
    &(weft_coll_op){
      .kind = WEFT_ALL_REDUCE, .dtype = WEFT_F32, .reduction = WEFT_SUM, .send = mine, .recv = sum, .count = COUNT},
    &(weft_coll_call){.deadline = deadline}));
  printf("rank %d: %g %g %g %g\n", rank, sum[0], sum[1], sum[2], sum[3]);
  return NULL;
}

int main(int argc, char **argv)
{
  if (argc != 4) {
    fprintf(stderr, "usage: %s DIRECTORY RANK SIZE\n", argv[0]);
    return 2;
  }
  WEFT_AUTO(weft_status) error = all_reduce(argv[1], atoi(argv[2]), atoi(argv[3]));
  if (error) fprintf(stderr, "%s\n", weft_status_text(error, false));
  return error != NULL;
}
