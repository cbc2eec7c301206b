/* tests/collective/schedule_test.c -- every algorithm on the simulator: its results are right, and it has no races and
 * no deadlocks. */
#include "test.h"

#include "collective/host/simulate.h"

static const weft_coll_kind kinds[] = {
  WEFT_BARRIER, WEFT_ALL_REDUCE, WEFT_REDUCE, WEFT_REDUCE_SCATTER, WEFT_BROADCAST, WEFT_ALL_GATHER,
  WEFT_GATHER, WEFT_SCATTER, WEFT_ALL_TO_ALL, WEFT_PERMUTE,
};

static bool rooted(weft_coll_kind kind)
{
  return kind == WEFT_REDUCE || kind == WEFT_BROADCAST || kind == WEFT_GATHER || kind == WEFT_SCATTER;
}
static bool can_be_in_place(weft_coll_kind kind) { return kind == WEFT_ALL_REDUCE || kind == WEFT_BROADCAST; }

static void run_one(coll_problem p, coll_algorithm a)
{
  coll_sim_result result;
  coll_schedule schedule = {0};

  for (p.rank = 0; p.rank < p.size; p.rank++) {
    p.target = (p.rank + 1) % p.size;
    p.source = (p.rank + p.size - 1) % p.size;
    T_OK(coll_schedule_build(&p, a, &schedule));
    weft_status *st = coll_schedule_check(&p, &schedule);
    if (st)
      fail_msg("%s %s size %d bytes %lld root %d in place %d: %s", weft_coll_kind_name(p.kind), coll_algorithm_name(a),
               p.size, (long long)p.bytes, p.root, p.in_place, weft_status_text(st, false));
  }
  coll_schedule_fini(&schedule);
  p.rank = 0;
  T_OK(coll_simulate(&p, a, NULL, true, &result));
}

/* Labels of nodes: two uneven, pairs, interleaved. */
static int label(int layout, int rank, int size)
{
  return layout == 0 ? rank * 3 >= size : layout == 1 ? rank / 2 : rank % 2;
}

TEST(every_algorithm_is_right_for_1_to_17_ranks)
{
  static const int64_t counts[] = {0, 1, 3, 16, 100};
  int tried = 0;

  for (size_t k = 0; k < WEFT_COUNT(kinds); k++)
    for (int a = 0; a < COLL_ALGORITHM_COUNT; a++)
      for (int size = 1; size <= 17; size++)
        for (size_t c = 0; c < WEFT_COUNT(counts); c++)
          for (int layout = 0; layout < 3; layout++)
            for (int in_place = 0; in_place <= can_be_in_place(kinds[k]); in_place++) {
              uint64_t labels[17];
              coll_topology topology;
              for (int r = 0; r < size; r++) labels[r] = (uint64_t)label(layout, r, size);
              T_OK(coll_topology_init(&topology, labels, size));
              coll_problem p = {.kind = kinds[k], .size = size, .bytes = kinds[k] == WEFT_BARRIER ? 0 : 8 * counts[c], .elem_bytes = 8,
                                .topology = &topology, .segment_bytes = 64, .in_place = in_place};
              bool levels = a == COLL_ALG_HIERARCHICAL || a == COLL_ALG_LANES;
              bool fits = coll_algorithm_applies((coll_algorithm)a, &p);
              for (int root = 0; fits && (levels || layout == 0) && root < (rooted(p.kind) ? size : 1); root++) {
                p.root = root;
                run_one(p, (coll_algorithm)a);
                tried++;
              }
              coll_topology_fini(&topology);
            }
  print_message("# %d cases\n", tried);
  T_TRUE(tried > 5000);
}

TEST(every_kind_has_an_algorithm_and_a_rank_ordered_one)
{
  for (size_t k = 0; k < WEFT_COUNT(kinds); k++)
    for (int rank_order = 0; rank_order < 2; rank_order++) {
      coll_problem p = {.kind = kinds[k], .size = 5, .bytes = 8, .elem_bytes = 8, .rank_order = rank_order};
      int found = 0;
      for (int a = 0; a < COLL_ALGORITHM_COUNT; a++) found += coll_algorithm_applies((coll_algorithm)a, &p);
      T_TRUE(found > 0);
    }
}

TEST(logarithmic_algorithms_hold_at_65536_ranks)
{
  static const struct { weft_coll_kind kind; coll_algorithm algorithm; int size; int64_t count, rounds; } cases[] = {
    {WEFT_ALL_REDUCE, COLL_ALG_RECURSIVE_DOUBLING, 65536, 2, 16},
    {WEFT_ALL_REDUCE, COLL_ALG_RABENSEIFNER, 65535, 16, 34}, /* 15 + 15 and the two folding rounds of others */
    {WEFT_BARRIER, COLL_ALG_DISSEMINATION, 65536, 0, 16},
    {WEFT_BROADCAST, COLL_ALG_BINOMIAL, 65521, 2, 2},
    {WEFT_REDUCE, COLL_ALG_BINOMIAL, 65521, 2, 17},
  };
  for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
    coll_problem p = {.kind = cases[i].kind, .size = cases[i].size, .bytes = 8 * cases[i].count, .elem_bytes = 8};
    coll_sim_result r;
    T_OK(coll_simulate(&p, cases[i].algorithm, NULL, true, &r));
    print_message("# %s %s %d: %lld rounds, %.1f us\n", weft_coll_kind_name(p.kind),
                  coll_algorithm_name(cases[i].algorithm), p.size, (long long)r.rounds, r.time_ns / 1e3);
    T_TRUE(r.rounds <= cases[i].rounds);
  }
}

TEST_MAIN(UNIT(every_algorithm_is_right_for_1_to_17_ranks), UNIT(every_kind_has_an_algorithm_and_a_rank_ordered_one),
          UNIT(logarithmic_algorithms_hold_at_65536_ranks))
