/* runtime/saved.c -- an executable as bytes (saved.h). */
#include <config.h>

#include "runtime/saved.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "base/build_id.h"
#include "base/log.h"
#include "base/wire.h"
#include "hlo/infer.h"
#include "hlo/proto.h"
#include "runtime/runtime_internal.h"
#include "runtime/trace.h"

enum { VERSION_BYTES = 32, BUILD_BYTES = 16 };

typedef struct header {
  char magic[8], version[VERSION_BYTES], build[BUILD_BYTES];
  unsigned char digest[32];
} header;
_Static_assert(sizeof(header) == WEFT_SAVED_HEADER, "as saved.h says");

static const char magic[8] = {'w', 'e', 'f', 't', '.', 'e', 'x', 'e'};
_Static_assert(sizeof WEFT_BUILD_ID == BUILD_BYTES + 1, "a build is 16 digits");

/* Flags. */
enum { NO_EXCESS_PRECISION = 1 };

/* ---- the header ------------------------------------------------------------------------------------------------ */

bool weft_saved_is(const void *data, size_t size)
{
  return size >= sizeof magic && memcmp(data, magic, sizeof magic) == 0;
}

static bool digest_of(const void *data, size_t size, unsigned char out[32])
{
  return EVP_Digest((const char *)data + sizeof(header), size - sizeof(header), out, NULL, EVP_sha256(), NULL);
}

void weft_saved_seal(void *data, size_t size)
{
  header h = {.version = PACKAGE_VERSION};

  memcpy(h.magic, magic, sizeof magic);
  memcpy(h.build, WEFT_BUILD_ID, sizeof h.build);
  if (digest_of(data, size, h.digest)) memcpy(data, &h, sizeof h);
}

static void get_name(weft_reader *r, char *out, size_t room)
{
  size_t size;
  const char *text = weft_get_bytes(r, &size);

  if (size >= room || (text && memchr(text, '\0', size))) r->failed = true;
  if (r->failed || !text) return;
  memcpy(out, text, size);
  out[size] = '\0';
}

static void get_body(weft_reader *r, weft_saved *out)
{
  get_name(r, out->platform, sizeof out->platform);
  get_name(r, out->fingerprint, sizeof out->fingerprint);
  out->no_excess_precision = weft_get_u64(r) & NO_EXCESS_PRECISION;
  out->note = weft_get_bytes(r, &out->note_size);
  out->module = weft_get_bytes(r, &out->module_size);
  out->entry = weft_get_bytes(r, &out->entry_size);
  out->code = weft_get_bytes(r, &out->code_size);
}

weft_status *weft_saved_open(const void *data, size_t size, weft_saved *out)
{
  static const char version[VERSION_BYTES] = PACKAGE_VERSION;
  unsigned char digest[32];
  header h;

  *out = (weft_saved){0};
  if (size < sizeof h || !weft_saved_is(data, size))
    return WEFT_ERR(INVALID_ARGUMENT, "not a serialized executable of Weft (%zu bytes)", size);
  memcpy(&h, data, sizeof h);
  if (memcmp(h.version, version, sizeof h.version) != 0)
    return WEFT_ERR(FAILED_PRECONDITION, "the executable was serialized by Weft %.*s, this is %s",
                    (int)sizeof h.version, h.version, PACKAGE_VERSION);
  if (memcmp(h.build, WEFT_BUILD_ID, sizeof h.build) != 0)
    return WEFT_ERR(FAILED_PRECONDITION, "the executable was serialized by build %.*s of Weft %s, this is build %s",
                    (int)sizeof h.build, h.build, PACKAGE_VERSION, WEFT_BUILD_ID);
  if (!digest_of(data, size, digest)) return WEFT_ERR(INTERNAL, "no SHA-256");
  weft_reader r = {.at = (const char *)data + sizeof h, .end = (const char *)data + size};
  get_body(&r, out);
  if (memcmp(digest, h.digest, sizeof digest) != 0 || r.failed || r.at != r.end)
    return WEFT_ERR(DATA_LOSS, "the serialized executable is damaged");
  return NULL;
}

weft_status *weft_saved_pack(const weft_saved *saved, void **out_data, size_t *out_size)
{
  weft_writer w = {0};
  header empty = {0};

  weft_put_raw(&w, &empty, sizeof empty);
  weft_put_text(&w, saved->platform);
  weft_put_text(&w, saved->fingerprint);
  weft_put_u64(&w, saved->no_excess_precision ? NO_EXCESS_PRECISION : 0);
  weft_put_bytes(&w, saved->note, saved->note_size);
  weft_put_bytes(&w, saved->module, saved->module_size);
  weft_put_bytes(&w, saved->entry, saved->entry_size);
  weft_put_bytes(&w, saved->code, saved->code_size);
  WEFT_TRY(weft_writer_take(&w, out_data, out_size));
  weft_saved_seal(*out_data, *out_size);
  return NULL;
}

/* ---- modules ---------------------------------------------------------------------------------------------------- */

/* The pass normalize-layouts has put row-major arrays in the place of the entry's parameters and results, and the
 * module keeps beside them the shapes that clients see. An HloModuleProto has room for one of the two. */
static weft_status *pack_module(const weft_executable *exe, void **out_data, size_t *out_size)
{
  hlo_module executed = *weft_executable_module(exe);

  executed.has_entry_layout = false;
  executed.replica_count = weft_executable_replica_count(exe);
  executed.num_partitions = weft_executable_partition_count(exe);
  return hlo_to_proto_with_config(&executed, out_data, out_size);
}

static weft_status *put_shape(weft_writer *w, const hlo_shape *shape)
{
  void *data;
  size_t size;

  WEFT_TRY(hlo_shape_to_proto(shape, &data, &size));
  weft_put_bytes(w, data, size);
  free(data);
  return NULL;
}

static weft_status *pack_entry(const hlo_module *module, void **out_data, size_t *out_size)
{
  weft_writer w = {0};
  weft_status *st = NULL;

  if (module->has_entry_layout) {
    for (int i = 0; i < module->entry->param_count && !st; i++) st = put_shape(&w, module->entry_param_shapes[i]);
    if (!st) st = put_shape(&w, module->entry_result_shape);
  }
  if (!st) return weft_writer_take(&w, out_data, out_size);
  weft_writer_fini(&w);
  return st;
}

/* True if clients may see the arrays of `executed` as those of `seen`: as many bytes of the same type, leaf by leaf. */
static bool same_bytes(const hlo_shape *executed, const hlo_shape *seen)
{
  if (hlo_shape_leaf_count(executed) != hlo_shape_leaf_count(seen)) return false;
  for (int i = 0; i < hlo_shape_leaf_count(executed); i++) {
    const hlo_shape *a = hlo_shape_leaf(executed, i), *b = hlo_shape_leaf(seen, i);
    if (a->type != b->type || hlo_shape_is_array(a) != hlo_shape_is_array(b)) return false;
    if (hlo_shape_is_array(a) && hlo_shape_bytes(a) != hlo_shape_bytes(b)) return false;
  }
  return true;
}

static weft_status *get_shape(weft_reader *r, hlo_module *module, const hlo_shape *executed, const hlo_shape **out)
{
  size_t size;
  const void *data = weft_get_bytes(r, &size);

  if (r->failed) return WEFT_ERR(INVALID_ARGUMENT, "the shapes of \"%s\" are cut short", module->name);
  WEFT_TRY(hlo_shape_from_proto(&module->arena, data, size, out));
  if (!same_bytes(executed, *out))
    return WEFT_ERR(INVALID_ARGUMENT, "\"%s\" has parameters or results of other shapes than it says", module->name);
  return NULL;
}

static weft_status *read_entry(const weft_saved *saved, hlo_module *module)
{
  weft_reader r = {.at = saved->entry, .end = (const char *)saved->entry + saved->entry_size};
  const hlo_computation *entry = module->entry;

  if (saved->entry_size == 0) return NULL;
  module->entry_param_shapes = WEFT_ARENA_ARRAY(&module->arena, const hlo_shape *, entry->param_count);
  WEFT_TRY_ALLOC(module->entry_param_shapes);
  for (int i = 0; i < entry->param_count; i++)
    WEFT_TRY(get_shape(&r, module, entry->params[i]->shape, &module->entry_param_shapes[i]));
  WEFT_TRY(get_shape(&r, module, entry->root->shape, &module->entry_result_shape));
  module->has_entry_layout = true;
  return NULL;
}

weft_status *weft_saved_read_module(const weft_saved *saved, hlo_module **out_module)
{
  WEFT_AUTO(hlo_module) module = NULL;

  *out_module = NULL;
  WEFT_TRY(hlo_from_proto(saved->module, saved->module_size, &module));
  WEFT_TRY(hlo_verify(module));
  if (!module->is_scheduled) return WEFT_ERR(INVALID_ARGUMENT, "the program \"%s\" has no schedule", module->name);
  WEFT_TRY(read_entry(saved, module));
  *out_module = WEFT_MOVE(module);
  return NULL;
}

/* ---- executables ----------------------------------------------------------------------------------------------- */

weft_status *weft_executable_save(const weft_executable *exe, const char *cpus, const char *fingerprint,
                                  const void *note, size_t note_size, void **out_data, size_t *out_size)
{
  const weft_platform_ops *ops = weft_executable_platform(exe)->ops;
  weft_saved saved = {.note = note, .note_size = note_size,
                      .no_excess_precision = !weft_executable_has_excess_precision(exe)};
  void *module = NULL, *entry = NULL, *code = NULL;

  *out_data = NULL;
  if (!ops->save) return WEFT_ERR(UNIMPLEMENTED, "programs for the platform \"%s\" cannot be saved", ops->name);
  snprintf(saved.platform, sizeof saved.platform, "%s", ops->name);
  snprintf(saved.fingerprint, sizeof saved.fingerprint, "%s", fingerprint);
  weft_status *st = ops->save(exe, saved.no_excess_precision, cpus, &code, &saved.code_size);
  if (!st) st = pack_module(exe, &module, &saved.module_size);
  if (!st) st = pack_entry(weft_executable_module(exe), &entry, &saved.entry_size);
  saved.module = module;
  saved.entry = entry;
  saved.code = code;
  if (!st) st = weft_saved_pack(&saved, out_data, out_size);
  free(module);
  free(entry);
  free(code);
  return st;
}

static weft_status *check_count(const char *what, int64_t wanted, int64_t own)
{
  if (wanted == 0 || wanted == WEFT_MAX(own, 1)) return NULL;
  return WEFT_ERR(INVALID_ARGUMENT, "the program was compiled for %lld %s, not for %lld", (long long)WEFT_MAX(own, 1),
                  what, (long long)wanted);
}

weft_status *weft_executable_load_module(weft_platform *platform, const weft_saved *saved, hlo_module *taken,
                                         const weft_compile_options *options, weft_executable **out_executable)
{
  WEFT_AUTO(hlo_module) module = taken;
  weft_compile_options own = *options;
  int64_t begin = rt_trace_on ? weft_now_ns() : 0;

  *out_executable = NULL;
  if (strcmp(platform->ops->name, saved->platform) != 0)
    return WEFT_ERR(FAILED_PRECONDITION, "the executable was serialized for the platform \"%s\", this is \"%s\"",
                    saved->platform, platform->ops->name);
  if (!platform->ops->load)
    return WEFT_ERR(UNIMPLEMENTED, "programs for the platform \"%s\" cannot be loaded", platform->ops->name);
  WEFT_TRY(check_count("replicas", options->replica_count, module->replica_count));
  WEFT_TRY(check_count("partitions", options->partition_count, module->num_partitions));
  own.no_excess_precision = saved->no_excess_precision;
  WEFT_TRY_NOTE(platform->ops->load(platform, WEFT_MOVE(module), saved->code, saved->code_size, &own, out_executable),
                "loading a serialized executable");
  if (begin) rt_trace_event("compile", "load", 0, begin);
  WEFT_LOG("rt", DEBUG, "loaded \"%s\", which was compiled before", weft_executable_module(*out_executable)->name);
  return NULL;
}

weft_status *weft_executable_load(weft_platform *platform, const weft_saved *saved, const weft_compile_options *options,
                                  weft_executable **out_executable)
{
  int64_t begin = rt_trace_on ? weft_now_ns() : 0;
  hlo_module *module;

  *out_executable = NULL;
  WEFT_TRY(weft_saved_read_module(saved, &module));
  if (begin) rt_trace_event("compile", "read program", 0, begin);
  return weft_executable_load_module(platform, saved, module, options, out_executable);
}
