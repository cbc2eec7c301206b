/* cpu/conv.h -- HLO convolution on the worker pool, every form: any dimension order, padding, dilation, reversal,
 * feature and batch groups, any number of spatial dimensions. */
#ifndef WEFT_CPU_CONV_H
#define WEFT_CPU_CONV_H

#include <stdatomic.h>

#include "cpu/dot.h"
#include "cpu/onednn.h"

/* Where the elements of a kernel lie, in the order that the program gives it: elements from one output feature, from
 * one input feature, and from one place of each spatial dimension to the next. */
typedef struct cpu_conv_kernel { int64_t out_step, in_step, step[HLO_MAX_RANK]; } cpu_conv_kernel;

/* The plan of the form of conv_plane.c. A plane is spread into `elems` elements of the type of the sums. */
typedef struct cpu_conv_plane {
  weft_dtype compute;
  int64_t lhs_batch_step, lhs_feature_step, out_batch_step, out_feature_step;
  int64_t size[HLO_MAX_RANK], step[HLO_MAX_RANK]; /* dimensions of the spread plane */
  int64_t phase;                                  /* elements of its last dimension side by side: size / stride */
  int64_t elems;
  int64_t pitch, rows; /* elements between neighbouring rows of sums; how many rows are computed together */
  cpu_conv_kernel kernel;
  int64_t buffer_bytes, sums_bytes, spare_bytes;                      /* scratch of a task */
  int64_t groups_per_task;
} cpu_conv_plane;

/* The plan of the form of conv_first.c. */
typedef struct cpu_conv_first {
  bool shared;                                   /* the patches of all pixels are made before the products */
  int64_t pixels, features;                      /* of a task */
  int64_t pixel_tasks, feature_tasks;            /* of an image */
  int64_t row_bytes, shared_bytes;               /* of a row of patches; of all shared patches */
  cpu_gemm gemm;                                 /* the product of one task */
} cpu_conv_first;

/* The plan of the form of conv_lines.c. */
typedef struct cpu_conv_lines {
  int64_t width;                      /* pixels of a panel */
  int64_t images;                     /* whose planes are spread at a time */
  int64_t channels;                   /* input features of a block of k */
  int64_t features, panels;           /* of a task */
  int64_t feature_tasks, panel_tasks; /* of an image */
  bool shared;                        /* the panels of all pixels are made before the products */
  int64_t panels_at, kernel_at, scratch_bytes; /* scratch: planes, shared panels, the kernel if it is not f32 */
} cpu_conv_lines;

/* The plan of the form of conv_turned.c. */
typedef struct cpu_conv_turned {
  int64_t pixels, parts; /* of a task; parts of an image */
} cpu_conv_turned;

/* How an image is spread (conv_phases.h). */
typedef struct cpu_conv_phases {
  int64_t count[HLO_MAX_RANK];        /* of phases, by dimension */
  int64_t size[HLO_MAX_RANK], step[HLO_MAX_RANK]; /* of each phase, in places */
  int64_t all, places;                /* phases; places of one */
  int64_t columns;                    /* pixels of the result, with those between its lines */
} cpu_conv_phases;

/* The plan of the form of conv_tiles.c. */
typedef struct cpu_conv_tiles {
  bool gathers;                       /* panels are gathered from planes of one feature; else planes have two */
  cpu_conv_phases phases;             /* of a plane */
  int64_t plane;                      /* elements from one plane to the next */
  int64_t planes;                     /* of an image */
  int64_t k_tiles;
  int64_t images;                     /* whose planes are spread at a time */
  int64_t features, panels;           /* of a task */
  int64_t feature_tasks, panel_tasks; /* of an image */
  bool shared;                        /* the panels of all pixels are gathered before the products */
  int64_t panels_at, kernel_at, scratch_bytes; /* scratch: planes, shared panels, the kernel unless it is packed */
} cpu_conv_tiles;

/* The plan of the form of conv_rows.c. An image is the input spread: phases of lines of pixels. */
typedef struct cpu_conv_rows {
  bool in_place;                      /* the input is read where it lies: it is not spread */
  bool joined;                        /* the pixels of all images are counted as those of one */
  cpu_conv_phases phases;             /* of an image, whose places are pixels */
  int64_t image_pixels;
  int64_t pixel;                      /* elements from one pixel to the next */
  cpu_conv_kernel kernel;
  int64_t all_images, images;         /* images: that are spread at a time */
  int64_t strips, panels;             /* of 32 features, of 32 pixels; of a task */
  int64_t strip_tasks, panel_tasks;   /* of an image */
  int64_t kernel_at, scratch_bytes;   /* scratch: images, the kernel unless it is packed */
} cpu_conv_rows;

/* The plan of the form of conv_last.c. */
typedef struct cpu_conv_last {
  int64_t width, in_lines;            /* pixels of a line with its padding; lines of the input that a task reads */
  int64_t run_taps;                   /* taps that are neighbours in a line */
  int64_t lines, features;            /* of the result, of a task */
  int64_t line_tasks, feature_tasks;  /* of an image and group */
  bool few;                           /* output features: the lanes are elements of k */
} cpu_conv_last;

typedef struct cpu_conv {
  cpu_packing packing;                  /* of the kernel: in canonical order, then the packed form of each group */
  weft_dtype lhs_type, rhs_type, out_type;
  int spatial;
  int64_t batch;                        /* of the output */
  int64_t groups, batch_groups;         /* feature groups and batch groups; one of the two is 1 */
  int64_t in_features;                  /* per group */
  int64_t out_features;                 /* per group */
  int64_t lhs_features, all_features;   /* features of a whole pixel of lhs and of the output */
  int64_t in_size[HLO_MAX_RANK], kernel_size[HLO_MAX_RANK], out_size[HLO_MAX_RANK], in_step[HLO_MAX_RANK];
  hlo_window_dim window[HLO_MAX_RANK];
  int64_t in_pixels, taps, out_pixels;  /* products of the sizes */
  /* the array must be copied into canonical order, or the result must be copied out of it */
  bool order_lhs, order_rhs, order_out;
  cpu_transpose lhs_order, rhs_order, out_order;
  /* windows of one element with strides, features before pixels: the pixels that are read are copied side by side, and
   * all else is planned as without strides */
  bool picks;
  cpu_transpose pick;                   /* the copy, which goes to scratch at pick_at */
  bool direct;                          /* groups with few features: plain loops instead of products of matrices */
  bool by_plane;                        /* groups with few features, spatial dimensions innermost: conv_plane.c */
  cpu_conv_plane plane;
  bool by_first;                        /* features before pixels: conv_first.c */
  cpu_conv_first first_plan;
  bool by_lines;                        /* the same by panels of lines: conv_lines.c, with `plane`'s layout */
  cpu_conv_lines lines;
  bool by_tiles;                        /* the same on AMX tiles: conv_tiles.c */
  cpu_conv_tiles tiles;
  bool by_turned;                       /* the same with features in the lanes: conv_turned.c */
  cpu_conv_turned turned;
  bool by_rows;                         /* features last, on AMX tiles: conv_rows.c */
  cpu_conv_rows rows;
  bool by_last;                         /* features last, without patches: conv_last.c */
  cpu_conv_last last;
  cpu_onednn *onednn;                   /* oneDNN computes it; NULL: Weft's own kernels do */
  /* base dilation: one convolution without dilation for each class of output pixels */
  bool by_phase;
  bool plain;                           /* a 1 x 1 window with stride 1: the input itself is the matrix */
  bool whole;                           /* the convolution is one product, whose tiles are the tasks */
  int64_t rows_per_task, tasks_per_group;
  bool is_widened;                      /* bf16: tasks multiply the kernel as f32 and patches as f32 */
  cpu_gemm gemm;                        /* the product of one task that has all its rows */
  int64_t patch_bytes;                  /* bytes of the matrix of input patches of one task, in the task's scratch */
  int64_t packed_at;                    /* in the packing: of the groups' forms */
  int64_t rhs_at, spare_at, out_at, phase_rhs_at, pick_at, scratch_bytes;
} cpu_conv;

/* Plans.  Errors: UNIMPLEMENTED for element types without a kernel. */
WEFT_NODISCARD weft_status *cpu_conv_init(cpu_conv *conv, const hlo_conv_attrs *attrs, const hlo_shape *lhs,
                                          const hlo_shape *rhs, const hlo_shape *out);
void cpu_conv_fini(cpu_conv *conv); /* after cpu_conv_init returned NULL */
/* `packed`: the packed form of rhs, or NULL.  `scratch` has conv->scratch_bytes bytes.  Errors: RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *cpu_conv_run(const cpu_conv *conv, rt_pool *pool, const void *lhs, const void *rhs,
                                         const rt_form *packed, void *out, void *scratch);

/* What is done to the result where it is not stored: a compiled kernel whose units are pixels of the result, features
 * last, and which reads of a pixel only its own. */
typedef struct cpu_conv_then {
  void (*fn)(void *const *args, int64_t begin, int64_t end);
  void *const *args;                    /* those of the kernel */
  int arg_count, pixels_arg;            /* args[pixels_arg]: where the convolution's result would begin */
  int64_t room_bytes;                   /* of the kernel's scratch, the last of args; 0: none */
  atomic_bool *no_memory;
} cpu_conv_then;

/* Do tasks compute blocks of pixels with all their features, so that cpu_conv_run_then can do it? */
bool cpu_conv_takes_pixels(const cpu_conv *conv);
/* As cpu_conv_run, and calls then->fn for the pixels of each block instead of storing them. */
WEFT_NODISCARD weft_status *cpu_conv_run_then(const cpu_conv *conv, rt_pool *pool, const void *lhs, const void *rhs,
                                              const rt_form *packed, const cpu_conv_then *then, void *scratch);

/* to = `count` elements as f32, on the pool. */
void cpu_conv_widen(rt_pool *pool, weft_dtype type, const void *from, int64_t count, float *to);

cpu_conv_kernel cpu_conv_kernel_of(const hlo_conv_attrs *attrs, const hlo_shape *rhs);

/* Moves idx[rank] to the next place of an array of size[rank], in row-major order; from the last place to the first
 * one, and then returns false. */
static inline bool cpu_conv_next(int rank, const int64_t *size, int64_t *idx)
{
  for (int d = rank - 1; d >= 0; d--) {
    if (++idx[d] < size[d]) return true;
    idx[d] = 0;
  }
  return false;
}

#endif
