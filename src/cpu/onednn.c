/* cpu/onednn.c -- convolutions by oneDNN (onednn.h).
 *
 * The result is cut into tiles: some lines of the first spatial dimension, or some images.  A tile is a convolution of
 * its own, whose input is the part of the image that its lines read and whose padding is what lies outside of the
 * image.  Large kernels are cut too, into parts of some output features: a tile then reads one part, and its result is
 * copied to its place among the other features.  Tiles with the same sizes and padding share a primitive (a *kind* of
 * tile); most images have three kinds, at the first lines, inside, and at the last lines.
 *
 * Debian's library runs its loops by OpenMP, on as many threads as the calling thread's OpenMP setting says.  So each
 * call is made between alone_begin and alone_end, which set one thread and restore the setting. */
#include <config.h>

#include "cpu/onednn.h"

#include <assert.h>
#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/macros.h"
#include "base/swap.h"
#include "codegen/model/processor.h"

enum {
  MOST_KINDS = 8,
  MOST_TAPS = 128,
  TILE_FLOPS = 10000000,  /* some 100 us of f32 */
  MOST_TILES = 1 << 20,   /* wanted number of tiles; planning looks at each tile */
  MOST_BYTES = 1 << 30,   /* most bytes of an array of a call: the library counts in 32 bits in some places */
  FEW_FLOPS = 2000000,    /* convolutions from here on have FEW_TILES tiles at least */
  FEW_TILES = 4,
  SMALL_WINDOW = 9,
  SMALL_IMAGE = 256, /* pixels */
  TINY_IMAGE = 64,
  FEW_FEATURES = 32,
  MANY_FEATURES = 512,
  LEAST_FLOPS = 200000,   /* for smaller tiles, calls of the library would take longer than the work */
  PART_FEATURES = 64,
  PART_BYTES = 256 << 10, /* larger kernels are cut: otherwise they would be read again for each tile */
  /* for smaller ones, bringing the kernel into the library's order would take longer than the work */
  LEAST_PIXELS = 16,
};

/* ---- the library ------------------------------------------------------------------------------------------------- */

#if DNNL_VERSION_MAJOR != 2
#error "the functions of this version are others"
#endif
#define LIBRARY "libdnnl.so.2"
#define FUNCTIONS(X) \
  X(dnnl_version) X(dnnl_engine_create) X(dnnl_stream_create) X(dnnl_stream_destroy) \
  X(dnnl_memory_desc_init_by_strides) X(dnnl_memory_desc_init_by_tag) X(dnnl_memory_desc_get_size) X(dnnl_memory_desc_equal) X(dnnl_memory_create) X(dnnl_memory_destroy) \
  X(dnnl_dilated_convolution_forward_desc_init) X(dnnl_primitive_attr_create) \
  X(dnnl_primitive_attr_destroy) X(dnnl_primitive_attr_set_scratchpad_mode) X(dnnl_primitive_attr_set_fpmath_mode) \
  X(dnnl_primitive_desc_create) X(dnnl_primitive_desc_destroy) X(dnnl_primitive_desc_query) \
  X(dnnl_primitive_desc_query_md) X(dnnl_reorder_primitive_desc_create) X(dnnl_primitive_create) \
  X(dnnl_primitive_destroy) X(dnnl_primitive_execute)

static struct library {
#define MEMBER(name) __typeof__(name) *name;
  FUNCTIONS(MEMBER)
  /* of the OpenMP that the library uses; NULL: the library has no threads */
  int (*max_threads)(void);
  void (*set_threads)(int);
  dnnl_engine_t engine;
  char version[128]; /* or the reason why the library cannot be used */
  bool works;
} its;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_bool switched_off;

/* The library looks a name up among the process's global names first, then in what it is linked with. */
static void *openmp_symbol(void *handle, const char *name)
{
  void *found = dlsym(RTLD_DEFAULT, name);

  return found ? found : dlsym(handle, name);
}

static const char *find_threads(void *handle)
{
  switch (its.dnnl_version()->cpu_runtime) {
  case DNNL_RUNTIME_SEQ: return NULL;
  case DNNL_RUNTIME_OMP: break;
  default: return "its threads cannot be limited to one";
  }
  *(void **)&its.max_threads = openmp_symbol(handle, "omp_get_max_threads");
  *(void **)&its.set_threads = openmp_symbol(handle, "omp_set_num_threads");
  return its.max_threads && its.set_threads ? NULL : "its OpenMP is not found";
}

/* Has the library keep to the instructions that this process may use, if it may not use all (processor.h). It does not
 * hear if it has computed for another part of the process before. */
static void limit_instructions(void *handle)
{
  char missing[64];
  dnnl_status_t (*set)(dnnl_cpu_isa_t);

  if (!gen_isa_limit() || !(*(void **)&set = dlsym(handle, "dnnl_set_max_cpu_isa"))) return;
  set(gen_processor_has("amx-tile", missing) ? dnnl_cpu_isa_all
      : gen_this_processor.avx512_bf16       ? dnnl_cpu_isa_avx512_core_bf16
      : gen_this_processor.avx512_vnni       ? dnnl_cpu_isa_avx512_core_vnni
      : gen_this_processor.avx512            ? dnnl_cpu_isa_avx512_core
      : gen_this_processor.avx2              ? dnnl_cpu_isa_avx2
                                             : dnnl_cpu_isa_sse41);
}

/* The reason why the library cannot be used, or NULL. */
static const char *load(void)
{
  /* never closed: plans may live as long as the process */
  void *handle = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

  if (!handle && WEFT_ONEDNN_DIR[0]) handle = dlopen(WEFT_ONEDNN_DIR "/lib/" LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (!handle) return dlerror();
#define RESOLVE(name) \
  if (!(*(void **)&its.name = dlsym(handle, #name))) return "it has no function " #name;
  FUNCTIONS(RESOLVE)
  const dnnl_version_t *v = its.dnnl_version();
  if (v->major != DNNL_VERSION_MAJOR || v->minor < DNNL_VERSION_MINOR)
    return "it is older than the headers of the build";
  const char *why = find_threads(handle);
  if (why) return why;
  limit_instructions(handle);
  if (its.dnnl_engine_create(&its.engine, dnnl_cpu, 0) != dnnl_success) return "it has no engine for this processor";
  snprintf(its.version, sizeof its.version, "%d.%d.%d", v->major, v->minor, v->patch);
  return NULL;
}

static void open_library(void)
{
  const char *why = load();

  its.works = !why;
  if (!why) return;
  snprintf(its.version, sizeof its.version, "none: %s", why);
  WEFT_LOG("cpu", DEBUG, "no oneDNN (%s): %s", LIBRARY, why);
}

void cpu_onednn_allow(bool allowed) { atomic_store(&switched_off, !allowed); }

const char *cpu_onednn_version(void)
{
  pthread_once(&once, open_library);
  return its.version;
}

bool cpu_onednn_is_there(void)
{
  if (atomic_load(&switched_off)) return false;
  cpu_onednn_version();
  return its.works;
}

/* Between these two the library uses the calling thread alone. */
static int alone_begin(void)
{
  int before = its.max_threads ? its.max_threads() : 1;

  if (before != 1) its.set_threads(1);
  return before;
}
static void alone_end(int before)
{
  if (before != 1) its.set_threads(before);
}

/* ---- planning ---------------------------------------------------------------------------------------------------- */

/* The place of a tile: images, lines of the first spatial dimension, and the lines of the input that these read. */
typedef struct tile_place {
  int64_t image, images, line, lines, from, from_lines;
  int64_t before, after; /* padding */
} tile_place;

typedef struct tile_kind {
  int64_t images, lines, from_lines, before, after;
  dnnl_primitive_t primitive;
  dnnl_memory_desc_t src, dst, scratch;
} tile_kind;

/* The properties on which a form of the kernel depends: plans for which these are equal share forms. */
typedef struct form_key {
  int64_t parts, step[HLO_MAX_RANK];
  dnnl_memory_desc_t desc; /* of a part */
} form_key;

struct cpu_onednn {
  int spatial;
  weft_dtype type, out_type;
  int64_t batch, features, out_features;     /* of all groups */
  int64_t in_lines, out_lines, in_line_elems, out_line_elems;
  hlo_window_dim window;                     /* of the first spatial dimension */
  int64_t window_lines;
  /* tiles_image: of one image, where tile_images is 1; tiles: of one part of the kernel */
  int64_t tile_images, tile_lines, tiles_image, tiles;
  int kind_count;
  tile_kind kinds[MOST_KINDS];
  int64_t scratch_bytes;                     /* of a call */
  int64_t result_bytes;                      /* of a tile; 0: tiles are written to their places */
  form_key form;
  int64_t parts, part_features;              /* of the kernel */
  int64_t part_bytes;                        /* of a part of the form; 0: the kernel is used as it lies */
  int64_t part_from_bytes;                   /* between parts of the kernel */
  dnnl_memory_desc_t from;                   /* a part of the kernel */
  dnnl_primitive_t reorder;
};

/* The convolution, or one line of pixels of all images if all pixels are alike. */
typedef struct view {
  const cpu_onednn_conv *c;
  int spatial;
  int64_t batch, in[HLO_MAX_RANK], kernel[HLO_MAX_RANK], out[HLO_MAX_RANK];
  hlo_window_dim window[HLO_MAX_RANK];
} view;

static bool view_of(const cpu_onednn_conv *c, view *v)
{
  int64_t pixels = c->batch;

  *v = (view){.c = c, .spatial = c->spatial, .batch = c->batch};
  for (int d = 0; d < c->spatial; d++) {
    v->in[d] = c->in_size[d];
    v->kernel[d] = c->kernel_size[d];
    v->window[d] = c->window[d];
    pixels *= v->out[d] = c->out_size[d];
  }
  if (!c->plain) return c->spatial >= 1 && c->spatial <= 3;
  v->spatial = 1;
  v->batch = 1;
  v->in[0] = v->out[0] = pixels;
  v->kernel[0] = 1;
  v->window[0] = (hlo_window_dim){.size = 1, .stride = 1, .window_dilation = 1, .base_dilation = 1};
  return true;
}

static double flops_of(const view *v)
{
  double flops = 2.0 * (double)v->batch * (double)(v->c->in_features * v->c->out_features) * (double)v->c->groups;

  for (int d = 0; d < v->spatial; d++) flops *= (double)(v->kernel[d] * v->out[d]);
  return flops;
}

/* The pixels of an image of the result. */
static int64_t image_pixels(const cpu_onednn_conv *c)
{
  int64_t pixels = 1;

  for (int d = 0; d < c->spatial; d++) pixels *= c->out_size[d];
  return pixels;
}

static bool is_strided(const cpu_onednn_conv *c)
{
  for (int d = 0; d < c->spatial; d++)
    if (c->window[d].stride > 1) return true;
  return false;
}

/* True if the copies into canonical order and back cost less time than the library saves.  Weft's kernels are slow on
 * small images, where few output features leave lanes idle, and on single features whose windows are large or take
 * strides. */
static bool pays_to_order(const cpu_onednn_conv *c, int64_t taps)
{
  int64_t pixels = image_pixels(c);

  if (c->groups > 1) return c->in_features > 1 || is_strided(c) || (taps > SMALL_WINDOW && pixels <= SMALL_IMAGE);
  return taps > 1 && c->in_features >= FEW_FEATURES && (pixels <= SMALL_IMAGE || c->out_features < FEW_FEATURES / 2);
}

/* For f32, by measurements (docs/adr/0009-onednn.md).  Windows of one element are products of matrices, at which Weft
 * is as fast. */
static bool is_fast_with_avx512(const cpu_onednn_conv *c, int64_t taps)
{
  return taps > 1 && (c->in_order || pays_to_order(c, taps));
}

/* The same with AVX2 alone, where the library loses by strides and by many features of large images, and where copies
 * for single features cost more than the library saves. */
static bool is_fast_with_avx2(const cpu_onednn_conv *c, int64_t taps)
{
  int64_t pixels = image_pixels(c);

  if (c->groups > 1) return c->in_order && c->in_features == 1;
  if (c->in_order && taps > 1 && c->in_features < FEW_FEATURES) return true;
  if (is_strided(c)) return false;
  if (taps == 1) return pixels <= SMALL_IMAGE && (c->in_order || c->in_features >= MANY_FEATURES);
  if (taps > SMALL_WINDOW) return c->in_features >= FEW_FEATURES / 2;
  if (c->out_features < FEW_FEATURES / 2) return false;
  return c->in_order && pixels <= TINY_IMAGE;
}

/* True if the convolution is of a kind at which the library is faster. */
static bool fits(const view *v)
{
  const cpu_onednn_conv *c = v->c;
  int64_t taps = 1, pixels = v->batch;

  if (c->type != WEFT_F32 && c->type != WEFT_BF16) return false;
  if (c->out_type != c->type && c->out_type != WEFT_F32) return false;
  for (int d = 0; d < v->spatial; d++) {
    const hlo_window_dim *w = &v->window[d];
    if (w->base_dilation != 1 || w->reversal || w->pad_low < 0 || w->stride < 1 || w->window_dilation < 1) return false;
    if (v->in[d] < 1 || v->out[d] < 1 || v->kernel[d] < 1 || v->kernel[d] > MOST_TAPS) return false;
    taps *= v->kernel[d];
    pixels *= v->out[d];
  }
  if (taps > MOST_TAPS || pixels < LEAST_PIXELS || c->in_features < 1 || c->out_features < 1 ||
      flops_of(v) < LEAST_FLOPS)
    return false;
  if (c->type == WEFT_BF16) return gen_this_processor.avx512_bf16 && (c->in_order || pays_to_order(c, taps));
  if (gen_this_processor.avx512) return is_fast_with_avx512(c, taps);
  return gen_this_processor.avx2 && is_fast_with_avx2(c, taps);
}

static void plan_tiles(cpu_onednn *p, const view *v, bool cut)
{
  double flops = flops_of(v);
  int64_t wanted = (int64_t)WEFT_MIN(flops / TILE_FLOPS, (double)(MOST_TILES - 1)) + 1, all = p->out_features;
  double kernel_bytes = flops / 2 / (double)v->batch * (double)weft_dtype_bytes(p->type);

  for (int d = 0; d < v->spatial; d++) kernel_bytes /= (double)v->out[d];
  p->part_features = v->c->groups == 1 && all % PART_FEATURES == 0 && kernel_bytes >= PART_BYTES ? PART_FEATURES : all;
  p->parts = all / p->part_features;
  if (flops >= FEW_FLOPS) wanted = WEFT_MAX(wanted, FEW_TILES);
  wanted = (wanted + p->parts - 1) / p->parts;
  if (!cut) wanted = WEFT_MIN(wanted, v->batch);
  p->tile_images = WEFT_MAX(1, v->batch / wanted);
  int64_t parts = WEFT_MIN(v->out[0], (wanted + v->batch - 1) / v->batch); /* of an image */
  p->tile_lines = (v->out[0] + parts - 1) / parts;
  if (v->c->plain) p->tile_lines = WEFT_MIN(v->out[0], WEFT_ALIGN_UP(p->tile_lines, 16));
  p->tiles_image = (v->out[0] + p->tile_lines - 1) / p->tile_lines;
  p->tiles = (v->batch + p->tile_images - 1) / p->tile_images * p->tiles_image;
}

static tile_place place_of(const cpu_onednn *p, int64_t tile)
{
  tile_place t = {.image = tile / p->tiles_image * p->tile_images, .line = tile % p->tiles_image * p->tile_lines};
  int64_t first, end; /* lines of the input, if it had no edges */

  assert(tile < p->tiles);
  t.images = WEFT_MIN(p->tile_images, p->batch - t.image);
  t.lines = WEFT_MIN(p->tile_lines, p->out_lines - t.line);
  first = t.line * p->window.stride - p->window.pad_low;
  end = first + (t.lines - 1) * p->window.stride + (p->window_lines - 1) * p->window.window_dilation + 1;
  t.before = WEFT_MAX(0, -first);
  t.after = WEFT_MAX(0, end - p->in_lines);
  t.from = first + t.before;
  t.from_lines = end - t.after - t.from;
  /* whole images: the input between the lines that they read is skipped */
  if (t.images > 1) t.from_lines = p->in_lines;
  return t;
}

static const tile_kind *kind_of(const cpu_onednn *p, const tile_place *t)
{
  for (int i = 0; i < p->kind_count; i++) {
    const tile_kind *k = &p->kinds[i];
    if (k->images == t->images && k->lines == t->lines && k->from_lines == t->from_lines && k->before == t->before &&
        k->after == t->after)
      return k;
  }
  return NULL;
}

/* True if the arrays of a call are small enough for the library. */
static bool has_small_arrays(const cpu_onednn *p, const view *v, const tile_place *t)
{
  double kernel = (double)p->part_features * (double)v->c->in_features;
  double in = (double)(t->images * t->from_lines) * (double)p->in_line_elems;
  double out = (double)(t->images * t->lines) * (double)p->out_line_elems;

  for (int d = 0; d < v->spatial; d++) kernel *= (double)v->kernel[d];
  return WEFT_MAX(kernel, WEFT_MAX(in, out)) * sizeof(float) <= MOST_BYTES;
}

/* Lists the kinds of tiles, the most frequent one first; false if there are too many, or if one reads padding only or
 * is too large. */
static bool list_kinds(cpu_onednn *p, const view *v)
{
  int64_t frequent = 0, count[MOST_KINDS] = {0};

  p->kind_count = 0;
  for (int64_t i = 0; i < p->tiles; i++) {
    tile_place t = place_of(p, i);
    const tile_kind *k = kind_of(p, &t);
    if (!k) {
      if (p->kind_count == MOST_KINDS || t.from_lines < 1 || !has_small_arrays(p, v, &t)) return false;
      p->kinds[p->kind_count] = (tile_kind){t.images, t.lines, t.from_lines, t.before, t.after};
      k = &p->kinds[p->kind_count++];
    }
    if (++count[k - p->kinds] > count[frequent]) frequent = k - p->kinds;
  }
  WEFT_SWAP(p->kinds[frequent], p->kinds[0]);
  return true;
}

static dnnl_data_type_t data_type(weft_dtype type) { return type == WEFT_BF16 ? dnnl_bf16 : dnnl_f32; }

/* Describes a dense array [images, sizes..., features]. */
static dnnl_status_t describe(dnnl_memory_desc_t *desc, weft_dtype type, int spatial, int64_t images, int64_t features,
                              int64_t lines, const int64_t *size)
{
  dnnl_dims_t dims = {images, features, lines}, steps;
  int64_t step = features;

  for (int d = 1; d < spatial; d++) dims[d + 2] = size[d];
  steps[1] = 1;
  for (int d = spatial - 1; d >= 0; d--) {
    steps[d + 2] = step;
    step *= dims[d + 2];
  }
  steps[0] = step;
  return its.dnnl_memory_desc_init_by_strides(desc, spatial + 2, dims, data_type(type), steps);
}

/* Describes the kernel, of which all or some output features of each group, as the program has it, or, without `steps`,
 * in any order. */
static dnnl_status_t describe_kernel(dnnl_memory_desc_t *desc, const view *v, int64_t features, const int64_t *steps)
{
  const cpu_onednn_conv *c = v->c;
  dnnl_dims_t dims = {c->groups}, at = {0};
  int grouped = c->groups > 1, rank = v->spatial + 2 + grouped;

  dims[grouped] = features;
  dims[grouped + 1] = c->in_features;
  for (int d = 0; d < v->spatial; d++) dims[grouped + 2 + d] = v->kernel[d];
  if (!steps) return its.dnnl_memory_desc_init_by_tag(desc, rank, dims, data_type(c->type), dnnl_format_tag_any);
  at[0] = features * steps[0];
  for (int d = 0; d < v->spatial + 2; d++) at[d + grouped] = steps[d];
  return its.dnnl_memory_desc_init_by_strides(desc, rank, dims, data_type(c->type), at);
}

/* The library's plain loops, and its way over patches and a product, are slower than Weft's kernels. */
static bool is_fast(dnnl_primitive_desc_t desc)
{
  const char *name = "";

  return its.dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, &name) == dnnl_success &&
         (strncmp(name, "br", 2) == 0 || strncmp(name, "jit", 3) == 0);
}

/* The number of output features of a group in a part of the kernel. */
static int64_t group_features(const cpu_onednn *p, const view *v) { return p->part_features / v->c->groups; }

/* Makes the primitive of a kind.  The kernel comes in p->form.desc, or in any order for the first kind. */
static bool make_kind(cpu_onednn *p, const view *v, const dnnl_primitive_attr_t attr, tile_kind *k)
{
  dnnl_dims_t strides = {0}, dilates = {0}, before = {k->before}, after = {k->after};
  dnnl_memory_desc_t kernel = p->form.desc;
  dnnl_convolution_desc_t conv;
  dnnl_primitive_desc_t desc = NULL;

  for (int d = 0; d < v->spatial; d++) {
    const hlo_window_dim *w = &v->window[d];
    strides[d] = w->stride;
    dilates[d] = w->window_dilation - 1;
    if (d == 0) continue;
    before[d] = w->pad_low;
    after[d] =
      WEFT_MAX(0, (v->out[d] - 1) * w->stride - w->pad_low + (v->kernel[d] - 1) * w->window_dilation + 1 - v->in[d]);
  }
  if (k == p->kinds && describe_kernel(&kernel, v, group_features(p, v), NULL) != dnnl_success) return false;
  if (describe(&k->src, p->type, v->spatial, k->images, p->features, k->from_lines, v->in) != dnnl_success ||
      describe(&k->dst, p->out_type, v->spatial, k->images, p->part_features, k->lines, v->out) != dnnl_success ||
      its.dnnl_dilated_convolution_forward_desc_init(&conv, dnnl_forward_inference, dnnl_convolution_direct, &k->src,
                                                     &kernel, NULL, &k->dst, strides, dilates, before,
                                                     after) != dnnl_success ||
      its.dnnl_primitive_desc_create(&desc, &conv, attr, its.engine, NULL) != dnnl_success)
    return false;
  bool done = is_fast(desc) && its.dnnl_primitive_create(&k->primitive, desc) == dnnl_success;
  k->scratch = *its.dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
  if (k == p->kinds) p->form.desc = *its.dnnl_primitive_desc_query_md(desc, dnnl_query_weights_md, 0);
  p->scratch_bytes = WEFT_MAX(p->scratch_bytes, WEFT_ALIGN_UP((int64_t)its.dnnl_memory_desc_get_size(&k->scratch), 64));
  its.dnnl_primitive_desc_destroy(desc);
  return done;
}

static bool make_kinds(cpu_onednn *p, const view *v)
{
  dnnl_primitive_attr_t attr = NULL;

  if (!list_kinds(p, v) || its.dnnl_primitive_attr_create(&attr) != dnnl_success) return false;
  /* strict: the environment may ask the library to round f32 to bf16 */
  bool done = its.dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user) == dnnl_success &&
              its.dnnl_primitive_attr_set_fpmath_mode(attr, dnnl_fpmath_mode_strict) == dnnl_success;
  for (int i = 0; done && i < p->kind_count; i++) done = make_kind(p, v, attr, &p->kinds[i]);
  its.dnnl_primitive_attr_destroy(attr);
  return done;
}

static void free_kinds(cpu_onednn *p)
{
  for (int i = 0; i < p->kind_count; i++)
    if (p->kinds[i].primitive) its.dnnl_primitive_destroy(p->kinds[i].primitive);
  p->kind_count = 0;
  p->scratch_bytes = 0;
}

static bool make_reorder(cpu_onednn *p, const view *v, const int64_t *steps)
{
  dnnl_primitive_desc_t desc = NULL;

  memcpy(p->form.step, steps, sizeof p->form.step);
  p->form.parts = p->parts;
  p->part_from_bytes = p->part_features * steps[0] * (int64_t)weft_dtype_bytes(p->type);
  if (describe_kernel(&p->from, v, group_features(p, v), steps) != dnnl_success) return false;
  if (p->parts == 1 && its.dnnl_memory_desc_equal(&p->from, &p->form.desc)) return true;
  p->part_bytes = WEFT_ALIGN_UP((int64_t)its.dnnl_memory_desc_get_size(&p->form.desc), 64);
  if (its.dnnl_reorder_primitive_desc_create(&desc, &p->from, its.engine, &p->form.desc, its.engine, NULL) !=
      dnnl_success)
    return false;
  bool done = its.dnnl_primitive_create(&p->reorder, desc) == dnnl_success;
  its.dnnl_primitive_desc_destroy(desc);
  return done;
}

static bool plan(cpu_onednn *p, const view *v)
{
  int64_t steps[HLO_MAX_RANK] = {0};

  p->spatial = v->spatial;
  p->type = v->c->type;
  p->out_type = v->c->out_type;
  p->batch = v->batch;
  p->features = v->c->in_features * v->c->groups;
  p->out_features = v->c->out_features * v->c->groups;
  p->in_lines = v->in[0];
  p->out_lines = v->out[0];
  p->in_line_elems = p->features;
  p->out_line_elems = p->out_features;
  for (int d = 1; d < v->spatial; d++) {
    p->in_line_elems *= v->in[d];
    p->out_line_elems *= v->out[d];
  }
  p->window = v->window[0];
  p->window_lines = v->kernel[0];
  for (int d = 0; d < v->spatial + 2 && d < v->c->spatial + 2; d++) steps[d] = v->c->kernel_step[d];
  bool done = false;
  for (int cut = 1; cut >= 0 && !done; cut--) {
    free_kinds(p);
    plan_tiles(p, v, cut);
    done = make_kinds(p, v);
  }
  if (p->parts > 1)
    p->result_bytes = WEFT_ALIGN_UP(
      p->tile_images * p->tile_lines * p->out_line_elems / p->parts * (int64_t)weft_dtype_bytes(p->out_type), 64);
  return done && make_reorder(p, v, steps);
}

cpu_onednn *cpu_onednn_plan(const cpu_onednn_conv *conv)
{
  view v;

  if (!view_of(conv, &v) || !fits(&v) || !cpu_onednn_is_there()) return NULL;
  cpu_onednn *p = calloc(1, sizeof *p);
  if (!p) return NULL;
  int before = alone_begin();
  bool done = plan(p, &v);
  alone_end(before);
  if (done) return p;
  cpu_onednn_free(p);
  return NULL;
}

void cpu_onednn_free(cpu_onednn *p)
{
  if (!p) return;
  free_kinds(p);
  if (p->reorder) its.dnnl_primitive_destroy(p->reorder);
  free(p);
}

/* ---- the form of the kernel -------------------------------------------------------------------------------------- */

int64_t cpu_onednn_form_bytes(const cpu_onednn *p) { return p->parts * p->part_bytes; }

bool cpu_onednn_wants_form(const cpu_onednn *p) { return p->part_bytes > 0 && p->parts == 1; }

const void *cpu_onednn_form_key(const cpu_onednn *p, int64_t *out_bytes)
{
  *out_bytes = sizeof p->form;
  return &p->form;
}

/* ---- calls of the library ---------------------------------------------------------------------------------------- */

enum { MOST_ARGUMENTS = 4 };

/* Calls a primitive on arguments that lie at `data`. */
static dnnl_status_t call(dnnl_primitive_t primitive, int count, const int *what, const dnnl_memory_desc_t *const *desc,
                          void *const *data)
{
  dnnl_exec_arg_t args[MOST_ARGUMENTS];
  dnnl_stream_t stream = NULL;
  int made = 0, before = alone_begin();
  dnnl_status_t st = its.dnnl_stream_create(&stream, its.engine, dnnl_stream_default_flags);

  for (; st == dnnl_success && made < count; made++) {
    args[made].arg = what[made];
    st = its.dnnl_memory_create(&args[made].memory, desc[made], its.engine, data[made]);
    if (st != dnnl_success) break;
  }
  if (st == dnnl_success) st = its.dnnl_primitive_execute(primitive, stream, count, args);
  while (made > 0) its.dnnl_memory_destroy(args[--made].memory);
  if (stream) its.dnnl_stream_destroy(stream);
  alone_end(before);
  return st;
}

typedef struct form_job {
  const cpu_onednn *p;
  const char *kernel;
  char *form;
  atomic_int status; /* a dnnl_status_t: of a part that failed, if one did */
} form_job;

static dnnl_status_t make_part(const cpu_onednn *p, int64_t part, const char *kernel, void *to)
{
  return call(p->reorder, 2, (int[]){DNNL_ARG_FROM, DNNL_ARG_TO},
              (const dnnl_memory_desc_t *[]){&p->from, &p->form.desc},
              (void *[]){(char *)kernel + part * p->part_from_bytes, to});
}

static void form_task(void *ctx, int64_t task)
{
  form_job *job = ctx;
  dnnl_status_t st = make_part(job->p, task, job->kernel, job->form + task * job->p->part_bytes);

  /* read after the parallel loop has ended */
  if (st != dnnl_success) atomic_store_explicit(&job->status, (int)st, memory_order_relaxed);
}

static weft_status *error_of(int status)
{
  if (status == dnnl_success) return NULL;
  if (status == dnnl_out_of_memory) return WEFT_ERR(RESOURCE_EXHAUSTED, "convolution: oneDNN is out of memory");
  return WEFT_ERR(INTERNAL, "convolution: oneDNN failed with dnnl_status_t %d", status);
}

weft_status *cpu_onednn_make_form(const cpu_onednn *p, rt_pool *pool, const void *kernel, void *form)
{
  form_job job = {.p = p, .kernel = kernel, .form = form};

  rt_parallel_for(pool, p->parts, form_task, &job);
  return error_of(atomic_load(&job.status));
}

typedef struct conv_job {
  const cpu_onednn *p;
  const char *lhs, *kernel, *form; /* form NULL: parts are made from the kernel */
  char *out;
  atomic_int status;               /* as in form_job */
} conv_job;

/* Copies a tile of some output features to its place. */
static void place_result(const cpu_onednn *p, const tile_place *t, int64_t part, const char *from, char *out)
{
  int64_t bytes = (int64_t)weft_dtype_bytes(p->out_type), run = p->part_features * bytes;
  int64_t line_pixels = p->out_line_elems / p->out_features, pixels = t->images * t->lines * line_pixels;
  char *to = out + (t->image * p->out_lines + t->line) * p->out_line_elems * bytes + part * run;

  for (int64_t i = 0; i < pixels; i++) memcpy(to + i * p->out_features * bytes, from + i * run, (size_t)run);
}

/* `form`: that of the tile's part.  `scratch`: p->scratch_bytes, then p->result_bytes. */
static dnnl_status_t compute_tile(const conv_job *job, int64_t part, int64_t tile, const void *form, char *scratch)
{
  const cpu_onednn *p = job->p;
  tile_place t = place_of(p, tile);
  const tile_kind *k = kind_of(p, &t);
  int64_t from = (t.image * p->in_lines + t.from) * p->in_line_elems * (int64_t)weft_dtype_bytes(p->type);
  int64_t to = (t.image * p->out_lines + t.line) * p->out_line_elems * (int64_t)weft_dtype_bytes(p->out_type);
  char *result = p->result_bytes ? scratch + p->scratch_bytes : job->out + to;
  dnnl_status_t st = call(k->primitive, 4, (int[]){DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD},
                          (const dnnl_memory_desc_t *[]){&k->src, &p->form.desc, &k->dst, &k->scratch},
                          (void *[]){(char *)job->lhs + from, (void *)form, result, scratch});

  if (st == dnnl_success && p->result_bytes) place_result(p, &t, part, result, job->out);
  return st;
}

/* Tiles of one part follow each other, so that a thread finds the part in its cache. */
static void tile_task(void *ctx, int64_t task)
{
  conv_job *job = ctx;
  const cpu_onednn *p = job->p;
  int64_t part = task / p->tiles;
  char *scratch = rt_thread_scratch(WEFT_MAX(p->scratch_bytes + p->result_bytes, 64));
  dnnl_status_t st = dnnl_out_of_memory;

  if (scratch) st = compute_tile(job, part, task % p->tiles, job->form + part * p->part_bytes, scratch);
  /* read after the parallel loop has ended */
  if (st != dnnl_success) atomic_store_explicit(&job->status, (int)st, memory_order_relaxed);
}

/* Makes a part of the form, which no other task needs, and computes all tiles with it. */
static void part_task(void *ctx, int64_t part)
{
  conv_job *job = ctx;
  const cpu_onednn *p = job->p;
  char *scratch = rt_thread_scratch(p->scratch_bytes + p->result_bytes + p->part_bytes);
  char *form = scratch + p->scratch_bytes + p->result_bytes;
  dnnl_status_t st = scratch ? make_part(p, part, job->kernel, form) : dnnl_out_of_memory;

  for (int64_t i = 0; i < p->tiles && st == dnnl_success; i++) st = compute_tile(job, part, i, form, scratch);
  /* read after the parallel loop has ended */
  if (st != dnnl_success) atomic_store_explicit(&job->status, (int)st, memory_order_relaxed);
}

weft_status *cpu_onednn_run(const cpu_onednn *p, rt_pool *pool, const void *lhs, const void *kernel, const void *form,
                            void *out)
{
  conv_job job = {.p = p, .lhs = lhs, .kernel = kernel, .form = p->part_bytes ? form : kernel, .out = out};

  assert(job.form || p->parts > 1);
  if (job.form) rt_parallel_for(pool, p->tiles * p->parts, tile_task, &job);
  else rt_parallel_for(pool, p->parts, part_task, &job);
  return error_of(atomic_load(&job.status));
}
