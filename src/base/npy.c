/* base/npy.c -- arrays in NumPy's .npy files (npy.h). */
#include <config.h>

#include "base/npy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/swap.h"

enum { MAX_HEADER = 1 << 16 };
static const char magic[6] = "\x93NUMPY";

/* NumPy's kind letter for a type; 'V' if NumPy has no such type. */
static char kind_of(weft_dtype type)
{
  switch (weft_dtype_class_of(type)) {
  case WEFT_CLASS_PRED: return 'b';
  case WEFT_CLASS_SINT: return weft_dtype_bits(type) >= 8 ? 'i' : 'V';
  case WEFT_CLASS_UINT: return weft_dtype_bits(type) >= 8 ? 'u' : 'V';
  case WEFT_CLASS_FLOAT: return type == WEFT_F16 || type == WEFT_F32 || type == WEFT_F64 ? 'f' : 'V';
  case WEFT_CLASS_COMPLEX: return 'c';
  case WEFT_CLASS_NONE: break;
  }
  return '?';
}

/* The type that a kind letter and a size mean.  If NumPy lacks `expected`, void of its size means it, and so do
 * integers of its size, for hand-made files. */
static weft_dtype type_of(char kind, int64_t size, weft_dtype expected)
{
  if (expected != WEFT_INVALID && kind_of(expected) == 'V' && (int64_t)weft_dtype_bytes(expected) == size &&
      (kind == 'V' || kind == 'u' || kind == 'i'))
    return expected;
  for (int t = 1; t < WEFT_DTYPE_COUNT; t++)
    if (weft_dtype_is_array((weft_dtype)t) && kind_of((weft_dtype)t) == kind && kind != 'V' &&
        (int64_t)weft_dtype_bytes((weft_dtype)t) == size)
      return (weft_dtype)t;
  return WEFT_INVALID;
}

/* The text after 'key': in the header's dict, blanks skipped; NULL if there is none. */
static const char *find_key(const char *header, const char *key)
{
  char quoted[32];
  const char *at;

  snprintf(quoted, sizeof quoted, "'%s':", key);
  at = strstr(header, quoted);
  if (!at) return NULL;
  at += strlen(quoted);
  return at + strspn(at, " ");
}

static weft_status *parse_shape(const char *path, const char *at, weft_npy *out)
{
  if (*at++ != '(') return WEFT_ERR(INVALID_ARGUMENT, "%s: expected '(' after 'shape'", path);
  for (;;) {
    char *end;
    long long dim;
    at += strspn(at, " ,");
    if (*at == ')') return NULL;
    errno = 0;
    dim = strtoll(at, &end, 10);
    if (end == at || errno || dim < 0) return WEFT_ERR(INVALID_ARGUMENT, "%s: bad dimension in 'shape'", path);
    if (out->rank == WEFT_NPY_MAX_RANK) return WEFT_ERR(INVALID_ARGUMENT, "%s: rank over %d", path, WEFT_NPY_MAX_RANK);
    out->dims[out->rank++] = dim;
    at = end + (*end == 'L');
  }
}

static weft_status *parse_header(const char *path, const char *header, weft_dtype expected, weft_npy *out, bool *swap,
                                 bool *fortran)
{
  const char *descr = find_key(header, "descr"), *order = find_key(header, "fortran_order"),
             *shape = find_key(header, "shape");
  char kind, *end;
  long long size;

  if (!descr || !order || !shape)
    return WEFT_ERR(INVALID_ARGUMENT, "%s: the header lacks 'descr', 'fortran_order' or 'shape'", path);
  if (descr[0] != '\'' || !strchr("<>|=", descr[1]))
    return WEFT_ERR(INVALID_ARGUMENT, "%s: structured or unknown element type %.20s", path, descr);
  *swap = descr[1] == '>';
  kind = descr[2];
  size = strtoll(descr + 3, &end, 10);
  if (*end != '\'') return WEFT_ERR(INVALID_ARGUMENT, "%s: unknown element type %.20s", path, descr);
  out->type = type_of(kind, size, expected);
  if (out->type == WEFT_INVALID)
    return WEFT_ERR(INVALID_ARGUMENT, "%s: element type %.*s is not %s", path, (int)(end - descr) + 1, descr,
                    expected ? weft_dtype_name(expected) : "one of HLO's");
  *fortran = strncmp(order, "True", 4) == 0;
  return parse_shape(path, shape, out);
}

static void swap_bytes(weft_npy *a)
{
  size_t size = weft_dtype_bytes(weft_dtype_component(a->type));

  for (char *at = a->data, *end = at + a->bytes; size > 1 && at < end; at += size)
    for (size_t i = 0; i < size / 2; i++) WEFT_SWAP(at[i], at[size - 1 - i]);
}

/* Column-major to row-major. */
static weft_status *transpose(weft_npy *a)
{
  size_t size = weft_dtype_bytes(a->type);
  char *out = malloc((size_t)a->bytes + 1);
  int64_t index[WEFT_NPY_MAX_RANK] = {0}, count = a->bytes / (int64_t)size;

  WEFT_TRY_ALLOC(out);
  for (int64_t i = 0; i < count; i++) {
    int64_t from = 0;
    for (int d = a->rank - 1; d >= 0; d--) from = from * a->dims[d] + index[d];
    memcpy(out + (size_t)i * size, (char *)a->data + (size_t)from * size, size);
    for (int d = a->rank - 1; d >= 0 && ++index[d] == a->dims[d]; d--) index[d] = 0;
  }
  free(a->data);
  a->data = out;
  return NULL;
}

static weft_status *read_array(FILE *in, const char *path, weft_dtype expected, weft_npy *out)
{
  unsigned char start[12];
  char header[MAX_HEADER + 1];
  size_t length;
  bool swap = false, fortran = false;
  int64_t file_end;

  if (fread(start, 1, 10, in) != 10 || memcmp(start, magic, sizeof magic) != 0)
    return WEFT_ERR(INVALID_ARGUMENT, "%s: not an .npy file", path);
  if (start[6] < 1 || start[6] > 3) return WEFT_ERR(INVALID_ARGUMENT, "%s: .npy version %d", path, start[6]);
  length = (size_t)start[8] | (size_t)start[9] << 8;
  if (start[6] > 1) {
    if (fread(start + 10, 1, 2, in) != 2) return WEFT_ERR(INVALID_ARGUMENT, "%s: ends within its header", path);
    length |= (size_t)start[10] << 16 | (size_t)start[11] << 24;
  }
  if (length > MAX_HEADER) return WEFT_ERR(INVALID_ARGUMENT, "%s: a header of %zu bytes", path, length);
  if (fread(header, 1, length, in) != length) return WEFT_ERR(INVALID_ARGUMENT, "%s: ends within its header", path);
  header[length] = '\0';
  WEFT_TRY(parse_header(path, header, expected, out, &swap, &fortran));
  out->bytes = (int64_t)weft_dtype_bytes(out->type);
  for (int i = 0; i < out->rank; i++)
    if (__builtin_mul_overflow(out->bytes, out->dims[i], &out->bytes))
      return WEFT_ERR(INVALID_ARGUMENT, "%s: over 2^63 bytes", path);
  /* Checks that the file holds as many bytes as its header says, before memory is allocated for them. */
  {
    long at = ftell(in);
    if (at >= 0 && fseek(in, 0, SEEK_END) == 0) {
      file_end = ftell(in);
      if (file_end - at < out->bytes)
        return WEFT_ERR(INVALID_ARGUMENT, "%s: has %" PRId64 " bytes of data, its shape needs %" PRId64, path,
                        file_end - at, out->bytes);
      fseek(in, at, SEEK_SET);
    }
  }
  out->data = malloc((size_t)out->bytes + 1);
  if (!out->data) return WEFT_ERR(RESOURCE_EXHAUSTED, "%s: no memory for %" PRId64 " bytes", path, out->bytes);
  if (fread(out->data, 1, (size_t)out->bytes, in) != (size_t)out->bytes)
    return WEFT_ERR(INVALID_ARGUMENT, "%s: ends within its data", path);
  if (swap) swap_bytes(out);
  return fortran && out->rank > 1 ? transpose(out) : NULL;
}

weft_status *weft_npy_read(const char *path, weft_dtype expected, weft_npy *out_array)
{
  FILE *in = fopen(path, "re");
  weft_status *st;

  *out_array = (weft_npy){0};
  if (!in)
    return errno == ENOENT ? WEFT_ERR(NOT_FOUND, "%s: no such file", path)
                           : WEFT_ERR(INVALID_ARGUMENT, "%s: %s", path, strerror(errno));
  st = read_array(in, path, expected, out_array);
  fclose(in);
  if (st) weft_npy_fini(out_array);
  return st;
}

void weft_npy_fini(weft_npy *array)
{
  free(array->data);
  *array = (weft_npy){0};
}

weft_status *weft_npy_write(const char *path, weft_dtype type, int rank, const int64_t *dims, const void *data)
{
  char header[1024];
  int64_t bytes = (int64_t)weft_dtype_bytes(type);
  size_t length;
  FILE *out;
  bool ok;

  length = (size_t)snprintf(header, sizeof header, "{'descr': '%c%c%zu', 'fortran_order': False, 'shape': (",
                            weft_dtype_bytes(type) == 1 ? '|' : '<', kind_of(type), weft_dtype_bytes(type));
  for (int i = 0; i < rank; i++) {
    length +=
      (size_t)snprintf(header + length, sizeof header - length, "%" PRId64 ",%s", dims[i], i + 1 < rank ? " " : "");
    bytes *= dims[i];
  }
  length += (size_t)snprintf(header + length, sizeof header - length, "), }");
  while ((sizeof magic + 4 + length + 1) % 64 != 0) header[length++] = ' '; /* data start on a multiple of 64 */
  header[length++] = '\n';
  out = fopen(path, "we");
  if (!out) return WEFT_ERR(INVALID_ARGUMENT, "cannot write %s: %s", path, strerror(errno));
  ok = fwrite(magic, 1, sizeof magic, out) == sizeof magic && fputc(1, out) != EOF && fputc(0, out) != EOF &&
       fputc((int)(length & 0xff), out) != EOF && fputc((int)(length >> 8), out) != EOF &&
       fwrite(header, 1, length, out) == length && fwrite(data, 1, (size_t)bytes, out) == (size_t)bytes;
  if (fclose(out) != 0 || !ok) return WEFT_ERR(RESOURCE_EXHAUSTED, "cannot write %s: %s", path, strerror(errno));
  return NULL;
}
