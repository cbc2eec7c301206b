/* tests/cpu/against_evaluator.h -- runs programs on whole, small numbers, so that sums are exact in any order, and
 * compares the results with the reference evaluator's to the last bit. */
#ifndef WEFT_TESTS_CPU_AGAINST_EVALUATOR_H
#define WEFT_TESTS_CPU_AGAINST_EVALUATOR_H

#include "cpu/run.h"

#include <stdlib.h>
#include <string.h>

#include "hlo/eval.h"
#include "runtime/saved.h"

enum { RUNS = 3, MOST_PARAMETERS = 6, MOST_RESULTS = 8 };

/* Whole numbers from -1 to 1, and `start` for scalars. */
static inline hlo_literal *whole_numbers(weft_arena *arena, const hlo_shape *shape, int64_t start, unsigned *state)
{
  hlo_literal *literal;

  T_OK(hlo_literal_new(arena, shape, &literal));
  for (int64_t i = 0; i < hlo_shape_elems(shape); i++) {
    *state = *state * 1664525u + 1013904223u;
    int64_t value = (int64_t)(*state >> 16) % 3 - 1;
    if (weft_dtype_is_integer(shape->type)) hlo_literal_set_s64(literal, i, shape->rank ? value : start);
    else hlo_literal_set_f64(literal, i, (double)value, weft_dtype_is_complex(shape->type) ? (double)(i % 3) - 1 : 0);
  }
  return literal;
}

static inline bool same_bits(const hlo_literal *want, int leaf, const void *got, const char *name)
{
  const hlo_literal *part = hlo_shape_is_tuple(want->shape) ? want->elements[leaf] : want;

  if (memcmp(part->data, got, (size_t)hlo_shape_bytes(part->shape)) == 0) return true;
  print_message("# %s: result %d differs\n", name, leaf);
  return false;
}

/* Runs the program on the same buffers RUNS times, so that their packed forms are used. */
static inline bool runs_exactly(weft_executable *exe, const hlo_literal *const *arguments, const hlo_literal *want,
                                const char *name)
{
  weft_buffer *in[MOST_PARAMETERS], *out[MOST_RESULTS];
  weft_buffer *const *ins[] = {in};
  weft_buffer **outs[] = {out};
  int count = weft_executable_param_count(exe);
  bool ok = true;

  for (int i = 0; i < count; i++)
    in[i] = test_buffer(weft_executable_device(exe, 0), weft_executable_param_type(exe, i), arguments[i]->data);
  for (int run = 0; run < RUNS && ok; run++) {
    T_OK(weft_executable_launch(exe, &(weft_launch){.inputs = ins, .outputs = outs}));
    for (int i = 0; i < weft_executable_output_count(exe); i++) {
      const hlo_literal *part = hlo_shape_is_tuple(want->shape) ? want->elements[i] : want;
      void *got = malloc((size_t)hlo_shape_bytes(part->shape));
      T_TRUE(got != NULL);
      T_OK(weft_buffer_to_host(out[i], got, weft_deadline_after_ms(60000)));
      ok = same_bits(want, i, got, name) && ok;
      free(got);
      weft_buffer_release(out[i]);
    }
  }
  for (int i = 0; i < count; i++) weft_buffer_release(in[i]);
  return ok;
}

/* How often `word` stands in what is printed of the steps. */
static inline int count_in_steps(const weft_executable *exe, const char *word)
{
  char *steps = test_steps_of(exe);
  int count = 0;

  for (const char *at = steps; (at = strstr(at, word)); at++) count++;
  free(steps);
  return count;
}

static inline int count_steps(const weft_executable *exe, const char *kind)
{
  char word[32];

  snprintf(word, sizeof word, " %s ", kind);
  return count_in_steps(exe, word);
}

/* Compiles `text`, runs it, saves it, loads it and runs it again; false, with a comment that begins with `name`, if the
 * bits are not the evaluator's. `start`: what integer scalars among the parameters are. *out_kernels and *out_copies:
 * the steps of these kinds. */
static inline bool gives_exactly(weft_platform *platform, const char *text, int64_t start, const char *name,
                                 int *out_kernels, int *out_copies)
{
  weft_arena arena;
  hlo_module *module;
  hlo_literal *arguments[MOST_PARAMETERS];
  const hlo_literal *want;
  weft_saved saved;
  weft_executable *exe = test_compile(platform, text, BUF_TOPOLOGICAL), *loaded = NULL;
  unsigned state = 7;
  void *data;
  size_t size;

  weft_arena_init(&arena);
  T_OK(hlo_parse(text, strlen(text), &module));
  T_TRUE(module->entry->param_count <= MOST_PARAMETERS);
  for (int i = 0; i < module->entry->param_count; i++)
    arguments[i] = whole_numbers(&arena, module->entry->params[i]->shape, start, &state);
  T_OK(hlo_eval_module(module, (const hlo_literal *const *)arguments, &HLO_EVAL_DEFAULT, &arena, &want));
  bool ok = runs_exactly(exe, (const hlo_literal *const *)arguments, want, name);
  *out_kernels = count_steps(exe, "kernel");
  *out_copies = count_steps(exe, "copy");
  T_OK(weft_executable_save(exe, "", "print", "note", 4, &data, &size));
  T_OK(weft_saved_open(data, size, &saved));
  T_OK(weft_executable_load(platform, &saved, &(weft_compile_options){0}, &loaded));
  ok = ok && runs_exactly(loaded, (const hlo_literal *const *)arguments, want, name);
  free(data);
  weft_executable_release(loaded);
  weft_executable_release(exe);
  hlo_module_free(module);
  weft_arena_fini(&arena);
  return ok;
}

/* Copies `text` to `to`, with `type` in the place of each TYPE. */
static inline void put_of_type(char *to, const char *text, const char *type)
{
  for (const char *from = text; *from;) {
    bool is_type = strncmp(from, "TYPE", 4) == 0;
    to += is_type ? sprintf(to, "%s", type) : (*to = *from, 1);
    from += is_type ? 4 : 1;
  }
  *to = 0;
}

/* A random number from 0 to below - 1. */
static inline int64_t pick_below(uint64_t *state, int64_t below)
{
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (int64_t)(*state >> 33) % below;
}

/* The seeds of random programs: `count` from 0 on. WEFT_SEED=n: that one, whose program is printed; WEFT_COUNT=n: so
 * many, from WEFT_FIRST on. */
typedef struct seeds { uint64_t from, count; bool print; } seeds;
static inline seeds seeds_of(uint64_t count)
{
  const char *one = getenv("WEFT_SEED"), *first = getenv("WEFT_FIRST"), *most = getenv("WEFT_COUNT");

  if (one) return (seeds){strtoull(one, NULL, 10), 1, true};
  return (seeds){first ? strtoull(first, NULL, 10) : 0, most ? strtoull(most, NULL, 10) : count, false};
}

#endif
