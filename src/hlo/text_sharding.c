/* hlo/text_sharding.c -- which device holds what, in HLO text: shardings `{devices=[2,2]<=[4]}`, replica groups
 * `{{0,1},{2,3}}`, and the meshes that both may refer to: `mesh['x'=2,'y'=4]`. */
#include <config.h>

#include "hlo/sharding.h"
#include "hlo/text_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- meshes ----------------------------------------------------------------------------------------------------- */

/* maximal := 'maximal_mesh' '[' 'device_id' '=' int ']': one device, no axes   (the word is already read) */
static weft_status *read_maximal_mesh(hlo_reader *r, const hlo_mesh **out)
{
  hlo_mesh *mesh = WEFT_ARENA_NEW(r->arena, hlo_mesh);
  int64_t *device = WEFT_ARENA_NEW(r->arena, int64_t);

  WEFT_TRY_ALLOC(mesh);
  WEFT_TRY_ALLOC(device);
  WEFT_TRY(hlo_rd_expect(r, '['));
  WEFT_TRY(hlo_rd_expect_text(r, "device_id="));
  WEFT_TRY(hlo_rd_int_in(r, 0, INT64_MAX, device));
  mesh->device_ids = (hlo_ints){1, device};
  *out = mesh;
  return hlo_rd_expect(r, ']');
}

/* ids := '(' int {',' int} ')' | '(' '[' dims ']' ['T' '(' perm ')'] ')' */
static weft_status *read_device_ids(hlo_reader *r, hlo_mesh *mesh)
{
  const char *at = r->p;
  hlo_ints reshape, transpose = {0};

  WEFT_TRY(hlo_rd_expect(r, '('));
  if (!hlo_rd_at(r, '[')) {
    r->p = at;
    return hlo_rd_ints(r, '(', ')', &mesh->device_ids);
  }
  WEFT_TRY(hlo_rd_ints(r, '[', ']', &reshape));
  if (hlo_rd_accept_word(r, "T")) WEFT_TRY(hlo_rd_ints(r, '(', ')', &transpose));
  WEFT_TRY(hlo_rd_expect(r, ')'));
  return hlo_mesh_set_iota(r->arena, mesh, reshape, transpose);
}

/* mesh := 'mesh' '[' axis '=' int {',' ...} ']' [',' 'device_ids' '=' ids]   (the word is already read) */
static weft_status *read_mesh(hlo_reader *r, const hlo_mesh **out)
{
  hlo_mesh *mesh = WEFT_ARENA_NEW(r->arena, hlo_mesh);
  size_t mark = r->stack_used;

  WEFT_TRY_ALLOC(mesh);
  WEFT_TRY(hlo_rd_expect(r, '['));
  while (!hlo_rd_at(r, ']')) {
    hlo_mesh_axis axis;

    if (r->stack_used > mark) WEFT_TRY(hlo_rd_expect(r, ','));
    WEFT_TRY(hlo_rd_string(r, &axis.name));
    WEFT_TRY(hlo_rd_expect(r, '='));
    WEFT_TRY(hlo_rd_int_in(r, 1, INT32_MAX, &axis.size));
    WEFT_TRY(hlo_rd_push(r, &axis, sizeof axis));
  }
  WEFT_TRY(hlo_rd_expect(r, ']'));
  WEFT_TRY(hlo_rd_take(r, mark, sizeof(hlo_mesh_axis), &mesh->axes, &mesh->axis_count));
  if (strncmp(r->p, ",", 1) == 0) {
    hlo_reader ahead = *r;
    hlo_rd_skip(&ahead, 1);
    if (hlo_rd_accept_text(&ahead, "device_ids=")) {
      r->p = ahead.p;
      WEFT_TRY(read_device_ids(r, mesh));
    }
  }
  *out = mesh;
  return NULL;
}

/* Reads an axis: its name or, if the mesh has no axis of that name, its number. */
static weft_status *read_axis_name(hlo_reader *r, const hlo_mesh *mesh, const char **out)
{
  const char *at = r->p;
  char *end;

  WEFT_TRY(hlo_rd_string(r, out));
  for (int i = 0; i < mesh->axis_count; i++)
    if (strcmp(mesh->axes[i].name, *out) == 0) return NULL;
  errno = 0;
  long number = strtol(*out, &end, 10);
  if (errno || end == *out || *end || number < 0 || number >= mesh->axis_count)
    return hlo_rd_error(r, at, "the mesh has no axis \"%s\"", *out);
  *out = mesh->axes[number].name;
  return NULL;
}

/* axes := '{' [ axis {',' axis} ] '}'; axis := string [':' '(' pre_size ')' size] | '?' where `open` allows it */
static weft_status *read_axes(hlo_reader *r, const hlo_mesh *mesh, bool *open, const hlo_axis_ref **out, int *out_count)
{
  size_t mark = r->stack_used;
  bool first = true;

  WEFT_TRY(hlo_rd_expect(r, '{'));
  for (; !hlo_rd_at(r, '}'); first = false) {
    hlo_axis_ref axis = {0};

    if (!first) WEFT_TRY(hlo_rd_expect(r, ','));
    if (open && hlo_rd_accept(r, '?')) {
      *open = true;
      break;
    }
    WEFT_TRY(read_axis_name(r, mesh, &axis.name));
    if (hlo_rd_accept(r, ':')) {
      WEFT_TRY(hlo_rd_expect(r, '('));
      WEFT_TRY(hlo_rd_int_in(r, 1, INT32_MAX, &axis.pre_size));
      WEFT_TRY(hlo_rd_expect(r, ')'));
      WEFT_TRY(hlo_rd_int_in(r, 1, INT32_MAX, &axis.size));
    }
    WEFT_TRY(hlo_rd_push(r, &axis, sizeof axis));
  }
  WEFT_TRY(hlo_rd_expect(r, '}'));
  return hlo_rd_take(r, mark, sizeof(hlo_axis_ref), out, out_count);
}

static bool is_maximal(const hlo_mesh *mesh) { return mesh->axis_count == 0 && mesh->device_ids.count == 1; }

static void print_mesh(FILE *out, const hlo_mesh *mesh)
{
  if (is_maximal(mesh)) {
    fprintf(out, "maximal_mesh[device_id=%" PRId64 "]", mesh->device_ids.v[0]);
    return;
  }
  fputs("mesh[", out);
  for (int i = 0; i < mesh->axis_count; i++)
    fprintf(out, "%s'%s'=%" PRId64, i ? "," : "", mesh->axes[i].name, mesh->axes[i].size);
  fputc(']', out);
  if (mesh->device_ids.count) {
    fputs(", device_ids=", out);
    hlo_pr_ints(out, '(', mesh->device_ids, ')');
  }
}

static void print_axes(FILE *out, int count, const hlo_axis_ref *axes, bool open)
{
  fputc('{', out);
  for (int i = 0; i < count; i++) {
    fprintf(out, "%s'%s'", i ? ", " : "", axes[i].name);
    if (axes[i].size) fprintf(out, ":(%" PRId64 ")%" PRId64, axes[i].pre_size, axes[i].size);
  }
  if (open) fputs(count ? ", ?" : "?", out);
  fputc('}', out);
}

/* ---- shardings -------------------------------------------------------------------------------------------------- */

static const struct { const char *word; hlo_sharding_kind kind; } kinds[] = {
  {"replicated", HLO_SHARDING_REPLICATED}, {"maximal", HLO_SHARDING_MAXIMAL}, {"manual", HLO_SHARDING_MANUAL},
  {"unknown", HLO_SHARDING_UNKNOWN},       {"unreduced", HLO_SHARDING_UNREDUCED},
};

static const char *kind_word(hlo_sharding_kind kind)
{
  for (size_t i = 0; i < WEFT_COUNT(kinds); i++)
    if (kinds[i].kind == kind) return kinds[i].word;
  return "?";
}

static bool accept_kind(hlo_reader *r, hlo_sharding_kind *out)
{
  for (size_t i = 0; i < WEFT_COUNT(kinds); i++) {
    if (!hlo_rd_accept_word(r, kinds[i].word)) continue;
    *out = kinds[i].kind;
    return true;
  }
  return false;
}

/* devices := '[' dims ']' ( ids | '<=' '[' dims ']' ['T' '(' perm ')'] ) */
static weft_status *read_devices(hlo_reader *r, hlo_sharding *s)
{
  const char *at = r->p;
  size_t mark = r->stack_used;
  int64_t devices = 1;

  WEFT_TRY(hlo_rd_ints(r, '[', ']', &s->tile_dims));
  for (int i = 0; i < s->tile_dims.count; i++)
    if (s->tile_dims.v[i] < 1 || __builtin_mul_overflow(devices, s->tile_dims.v[i], &devices))
      return hlo_rd_error(r, at, "a tile assignment's dimensions are positive, their product below 2^63");
  s->kind = HLO_SHARDING_TILED;
  if (hlo_rd_accept_text(r, "<=")) {
    WEFT_TRY(hlo_rd_ints(r, '[', ']', &s->iota_reshape));
    if (hlo_rd_accept_word(r, "T")) WEFT_TRY(hlo_rd_ints(r, '(', ')', &s->iota_transpose));
    return NULL;
  }
  do {
    int64_t device;
    WEFT_TRY(hlo_rd_int(r, &device));
    WEFT_TRY(hlo_rd_push(r, &device, sizeof device));
  } while (hlo_rd_accept(r, ','));
  WEFT_TRY(hlo_rd_take(r, mark, sizeof(int64_t), &s->tile_devices.v, &s->tile_devices.count));
  if (s->tile_devices.count != devices)
    return hlo_rd_error(r, at, "%d devices for %" PRId64 " tiles", s->tile_devices.count, devices);
  return NULL;
}

static weft_status *read_last_dims(hlo_reader *r, hlo_sharding *s)
{
  size_t mark = r->stack_used;

  WEFT_TRY(hlo_rd_expect(r, '{'));
  while (!hlo_rd_at(r, '}')) {
    hlo_sharding_kind kind;

    if (r->stack_used > mark) WEFT_TRY(hlo_rd_expect(r, ','));
    if (!accept_kind(r, &kind)) return hlo_rd_expected(r, "a kind of sharding");
    WEFT_TRY(hlo_rd_push(r, &kind, sizeof kind));
  }
  WEFT_TRY(hlo_rd_expect(r, '}'));
  return hlo_rd_take(r, mark, sizeof(hlo_sharding_kind), &s->last_dims, &s->last_dim_count);
}

static const char *const reductions[] = {"sum", "max", "min"};

/* References to all axes of a mesh as a whole. */
static weft_status *all_axes(hlo_reader *r, const hlo_mesh *mesh, const hlo_axis_ref **out, int *out_count)
{
  hlo_axis_ref *axes = WEFT_ARENA_ARRAY(r->arena, hlo_axis_ref, mesh->axis_count);

  WEFT_TRY_ALLOC(axes);
  for (int i = 0; i < mesh->axis_count; i++) axes[i].name = mesh->axes[i].name;
  *out = axes;
  *out_count = mesh->axis_count;
  return NULL;
}

/* [reduction] axes; without a reduction: sum; without axes: all. */
static weft_status *read_unreduced(hlo_reader *r, hlo_sharding *s)
{
  while (s->unreduced_kind < 3 && !hlo_rd_accept_word(r, reductions[s->unreduced_kind])) s->unreduced_kind++;
  s->unreduced_kind %= 3;
  return hlo_rd_at(r, '{') ? read_axes(r, s->mesh, NULL, &s->unreduced, &s->unreduced_count)
                           : all_axes(r, s->mesh, &s->unreduced, &s->unreduced_count);
}

/* dims := '[' axes {',' axes} ']', or a word that applies to all axes of the mesh. */
static weft_status *read_named_dims(hlo_reader *r, hlo_sharding *s)
{
  size_t mark = r->stack_used;

  if (hlo_rd_accept_word(r, "replicated")) return NULL;
  if (hlo_rd_accept_word(r, "manual")) return all_axes(r, s->mesh, &s->manual, &s->manual_count);
  if (hlo_rd_accept_word(r, "unreduced")) {
    hlo_rd_accept(r, '=');
    return read_unreduced(r, s);
  }
  WEFT_TRY(hlo_rd_expect(r, '['));
  while (!hlo_rd_at(r, ']')) {
    struct hlo_named_dim dim = {0};

    if (r->stack_used > mark) WEFT_TRY(hlo_rd_expect(r, ','));
    WEFT_TRY(read_axes(r, s->mesh, &dim.open, &dim.axes, &dim.axis_count));
    WEFT_TRY(hlo_rd_push(r, &dim, sizeof dim));
  }
  WEFT_TRY(hlo_rd_expect(r, ']'));
  return hlo_rd_take(r, mark, sizeof *s->dims, &s->dims, &s->dim_count);
}

/* named := ( mesh [','] dims | maximal ) {',' ('replicated'|'unreduced'|'manual'|'metadata') '=' ...} '}' */
static weft_status *read_named(hlo_reader *r, hlo_sharding *s, bool maximal)
{
  s->kind = HLO_SHARDING_NAMED;
  WEFT_TRY((maximal ? read_maximal_mesh : read_mesh)(r, &s->mesh));
  if (!maximal) {
    hlo_rd_accept(r, ','); /* XLA omits it */
    WEFT_TRY(read_named_dims(r, s));
  }
  while (hlo_rd_accept(r, ',')) {
    if (hlo_rd_accept_text(r, "replicated=")) {
      WEFT_TRY(read_axes(r, s->mesh, NULL, &s->replicated, &s->replicated_count));
    } else if (hlo_rd_accept_text(r, "unreduced=")) {
      WEFT_TRY(read_unreduced(r, s));
    } else if (hlo_rd_accept_text(r, "manual=")) {
      WEFT_TRY(read_axes(r, s->mesh, NULL, &s->manual, &s->manual_count));
    } else if (hlo_rd_accept_text(r, "metadata=")) {
      const char *ignored;
      WEFT_TRY(hlo_rd_braces(r, &ignored));
    } else {
      return hlo_rd_expected(r, "replicated=, unreduced=, manual= or metadata=");
    }
  }
  return hlo_rd_expect(r, '}');
}

static weft_status *read_sharding(hlo_reader *r, bool nested, const hlo_sharding **out);

static weft_status *read_tuple(hlo_reader *r, hlo_sharding *s)
{
  size_t mark = r->stack_used;

  s->kind = HLO_SHARDING_TUPLE;
  while (!hlo_rd_at(r, '}')) {
    const hlo_sharding *element;

    if (r->stack_used > mark) WEFT_TRY(hlo_rd_expect(r, ','));
    WEFT_TRY(read_sharding(r, true, &element));
    WEFT_TRY(hlo_rd_push(r, &element, sizeof element));
  }
  WEFT_TRY(hlo_rd_expect(r, '}'));
  return hlo_rd_take(r, mark, sizeof(hlo_sharding *), &s->elements, &s->tuple_count);
}

/* The elements of a tuple may not be tuples. */
static weft_status *read_sharding(hlo_reader *r, bool nested, const hlo_sharding **out)
{
  hlo_sharding *s = WEFT_ARENA_NEW(r->arena, hlo_sharding);
  const char *at = r->p;
  bool has_kind = false;

  WEFT_TRY_ALLOC(s);
  *out = s;
  WEFT_TRY(hlo_rd_expect(r, '{'));
  if (!nested && (hlo_rd_at(r, '{') || hlo_rd_at(r, '}'))) return read_tuple(r, s);
  if (hlo_rd_accept_word(r, "mesh")) return read_named(r, s, false);
  if (hlo_rd_accept_word(r, "maximal_mesh")) return read_named(r, s, true);
  while (!hlo_rd_at(r, '}')) {
    if (hlo_rd_accept_text(r, "devices=")) {
      WEFT_TRY(read_devices(r, s));
      has_kind = true;
    } else if (hlo_rd_accept_word(r, "last_tile_dim_replicate")) {
      s->replicate_last_dim = true;
    } else if (hlo_rd_accept_text(r, "last_tile_dims=")) {
      WEFT_TRY(read_last_dims(r, s));
    } else if (hlo_rd_accept_text(r, "device=")) {
      WEFT_TRY(hlo_rd_int(r, &s->maximal_device));
    } else if (hlo_rd_accept_word(r, "shard_as")) {
      s->shard_group = 1;
      WEFT_TRY(hlo_rd_int(r, &s->shard_group_id));
    } else if (hlo_rd_accept_word(r, "shard_like")) {
      s->shard_group = 2;
      WEFT_TRY(hlo_rd_int(r, &s->shard_group_id));
    } else if (hlo_rd_accept_text(r, "metadata=")) {
      const char *ignored; /* the source of the sharding; not kept */
      WEFT_TRY(hlo_rd_braces(r, &ignored));
    } else if (accept_kind(r, &s->kind)) {
      has_kind = true;
    } else {
      return hlo_rd_expected(r, "a sharding");
    }
  }
  if (!has_kind) return hlo_rd_error(r, at, "this sharding does not say what it is");
  if (s->kind != HLO_SHARDING_TILED && (s->replicate_last_dim || s->last_dim_count))
    return hlo_rd_error(r, at, "only devices=[...] has last_tile_dims");
  if (s->last_dim_count > s->tile_dims.count) return hlo_rd_error(r, at, "more last_tile_dims than dimensions");
  return hlo_rd_expect(r, '}');
}

weft_status *hlo_rd_sharding(hlo_reader *r, const hlo_sharding **out) { return read_sharding(r, false, out); }

void hlo_pr_sharding(FILE *out, const hlo_sharding *s)
{
  fputc('{', out);
  switch (s->kind) {
  case HLO_SHARDING_TUPLE:
    for (int i = 0; i < s->tuple_count; i++) {
      if (i) fputs(", ", out);
      hlo_pr_sharding(out, s->elements[i]);
    }
    break;
  case HLO_SHARDING_NAMED:
    print_mesh(out, s->mesh);
    if (is_maximal(s->mesh)) break;
    fputs(", [", out);
    for (int i = 0; i < s->dim_count; i++) {
      if (i) fputs(", ", out);
      print_axes(out, s->dims[i].axis_count, s->dims[i].axes, s->dims[i].open);
    }
    fputc(']', out);
    if (s->replicated_count) {
      fputs(", replicated=", out);
      print_axes(out, s->replicated_count, s->replicated, false);
    }
    if (s->unreduced_count) {
      fprintf(out, ", unreduced=%s", s->unreduced_kind ? reductions[s->unreduced_kind] : "");
      print_axes(out, s->unreduced_count, s->unreduced, false);
    }
    if (s->manual_count) {
      fputs(", manual=", out);
      print_axes(out, s->manual_count, s->manual, false);
    }
    break;
  case HLO_SHARDING_TILED:
    fputs("devices=", out);
    hlo_pr_ints(out, '[', s->tile_dims, ']');
    if (s->iota_reshape.count) {
      fputs("<=", out);
      hlo_pr_ints(out, '[', s->iota_reshape, ']');
      if (s->iota_transpose.count) {
        fputc('T', out);
        hlo_pr_ints(out, '(', s->iota_transpose, ')');
      }
    } else {
      for (int i = 0; i < s->tile_devices.count; i++) fprintf(out, "%s%" PRId64, i ? "," : "", s->tile_devices.v[i]);
    }
    if (s->replicate_last_dim) fputs(" last_tile_dim_replicate", out);
    if (s->last_dim_count) {
      fputs(" last_tile_dims={", out);
      for (int i = 0; i < s->last_dim_count; i++) fprintf(out, "%s%s", i ? ", " : "", kind_word(s->last_dims[i]));
      fputc('}', out);
    }
    break;
  case HLO_SHARDING_MAXIMAL: fprintf(out, "maximal device=%" PRId64, s->maximal_device); break;
  case HLO_SHARDING_REPLICATED:
  case HLO_SHARDING_MANUAL:
  case HLO_SHARDING_UNKNOWN:
  case HLO_SHARDING_UNREDUCED: fputs(kind_word(s->kind), out); break;
  }
  if (s->shard_group) fprintf(out, " %s %" PRId64, s->shard_group == 1 ? "shard_as" : "shard_like", s->shard_group_id);
  fputc('}', out);
}

weft_status *hlo_print_sharding(const hlo_sharding *sharding, FILE *out)
{
  hlo_pr_sharding(out, sharding);
  return ferror(out) ? WEFT_ERR(RESOURCE_EXHAUSTED, "cannot write a sharding") : NULL;
}

weft_status *hlo_parse_sharding(weft_arena *arena, const char *text, size_t size, const hlo_sharding **out)
{
  hlo_reader r;
  weft_status *st = hlo_rd_init(&r, arena, text, size);

  *out = NULL;
  if (!st) st = hlo_rd_sharding(&r, out);
  if (!st && r.p != r.end) st = hlo_rd_expected(&r, "the end of the sharding");
  hlo_rd_fini(&r);
  return st;
}

/* ---- replica groups --------------------------------------------------------------------------------------------- */

static weft_status *read_iota_groups(hlo_reader *r, hlo_replica_groups *g)
{
  const char *at = r->p;
  hlo_ints tile;
  int64_t devices = 1, product;

  g->form = HLO_GROUPS_IOTA;
  WEFT_TRY(hlo_rd_ints(r, '[', ']', &tile));
  if (tile.count != 2 || tile.v[0] < 1 || tile.v[1] < 1)
    return hlo_rd_error(r, at, "expected [groups,group size], both positive");
  g->num_groups = tile.v[0];
  g->group_size = tile.v[1];
  WEFT_TRY(hlo_rd_expect_text(r, "<="));
  WEFT_TRY(hlo_rd_ints(r, '[', ']', &g->reshape_dims));
  if (hlo_rd_accept_word(r, "T")) WEFT_TRY(hlo_rd_ints(r, '(', ')', &g->transpose_perm));
  for (int i = 0; i < g->reshape_dims.count; i++)
    if (g->reshape_dims.v[i] < 1 || __builtin_mul_overflow(devices, g->reshape_dims.v[i], &devices))
      return hlo_rd_error(r, at, "an iota's dimensions are positive, their product below 2^63");
  if (__builtin_mul_overflow(g->num_groups, g->group_size, &product) || product != devices)
    return hlo_rd_error(r, at, "%" PRId64 " devices do not make %" PRId64 " groups of %" PRId64, devices, g->num_groups,
                        g->group_size);
  if (g->transpose_perm.count && g->transpose_perm.count != g->reshape_dims.count)
    return hlo_rd_error(r, at, "a permutation of %d dimensions for an iota of %d", g->transpose_perm.count,
                        g->reshape_dims.count);
  return NULL;
}

weft_status *hlo_rd_replica_groups(hlo_reader *r, hlo_replica_groups *g)
{
  size_t mark = r->stack_used;

  if (hlo_rd_at(r, '[')) return read_iota_groups(r, g);
  if (hlo_rd_accept_word(r, "mesh")) {
    g->form = HLO_GROUPS_MESH;
    WEFT_TRY(read_mesh(r, &g->mesh));
    hlo_rd_accept(r, ',');
    return read_axes(r, g->mesh, NULL, &g->axes, &g->axis_count);
  }
  g->form = HLO_GROUPS_LIST;
  WEFT_TRY(hlo_rd_expect(r, '{'));
  while (!hlo_rd_at(r, '}')) {
    hlo_ints group;

    if (r->stack_used > mark) WEFT_TRY(hlo_rd_expect(r, ','));
    WEFT_TRY(hlo_rd_ints(r, '{', '}', &group));
    WEFT_TRY(hlo_rd_push(r, &group, sizeof group));
  }
  WEFT_TRY(hlo_rd_expect(r, '}'));
  return hlo_rd_take(r, mark, sizeof(hlo_ints), &g->groups, &g->group_count);
}

void hlo_pr_replica_groups(FILE *out, const hlo_replica_groups *g)
{
  switch (g->form) {
  case HLO_GROUPS_LIST:
    fputc('{', out);
    for (int i = 0; i < g->group_count; i++) {
      if (i) fputc(',', out);
      hlo_pr_ints(out, '{', g->groups[i], '}');
    }
    fputc('}', out);
    break;
  case HLO_GROUPS_IOTA:
    fprintf(out, "[%" PRId64 ",%" PRId64 "]<=", g->num_groups, g->group_size);
    hlo_pr_ints(out, '[', g->reshape_dims, ']');
    if (g->transpose_perm.count) {
      fputc('T', out);
      hlo_pr_ints(out, '(', g->transpose_perm, ')');
    }
    break;
  case HLO_GROUPS_MESH:
    print_mesh(out, g->mesh);
    fputc(' ', out);
    print_axes(out, g->axis_count, g->axes, false);
    break;
  }
}
