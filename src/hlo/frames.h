/* hlo/frames.h -- stacks of calls in the source that instructions come from, as tables which a module's instructions share:
 * hlo_metadata.stack_frame_id names the innermost call of one.  What a file says is kept as it is and printed back; ids
 * are looked at when asked for. */
#ifndef WEFT_HLO_FRAMES_H
#define WEFT_HLO_FRAMES_H

#include "hlo/hlo.h"

struct hlo_stack_frames {
  int file_count, function_count, location_count, frame_count; /* ids count from 1: id i is at i - 1 */
  const char **files, **functions;
  struct hlo_file_location { int file, function, line, column, end_line, end_column; } *locations;
  struct hlo_stack_frame { int location, parent; } *frames; /* parent as in text: 1 more than its id, 1 if none */
};

/* One call: where, in which function, and from whom. */
typedef struct hlo_frame {
  const char *function, *file; /* "" where the tables do not know */
  int line, column, end_line, end_column;
  int parent; /* id of the frame that called; 0 if none */
} hlo_frame;

/* False if the module has no frame of that id.  Callers come before what they call; a parent that does not is none. */
bool hlo_frame_get(const hlo_module *module, int id, hlo_frame *out_frame);

/* Where in the source an instruction comes from: what its metadata says, or the innermost of its frames.  False if
 * nobody knows. */
bool hlo_source_place(const hlo_instr *instr, const char **out_file, int *out_line);

/* Makes tables in which each name, place and frame is once. */
typedef struct hlo_frame_builder hlo_frame_builder;
WEFT_NODISCARD weft_status *hlo_frame_builder_new(weft_arena *arena /* borrows, to the end */,
                                                  hlo_frame_builder **out_builder);
/* The id of a frame.  Names are borrowed until the tables are taken, and the same if their pointers are. */
WEFT_NODISCARD weft_status *hlo_frame_add(hlo_frame_builder *builder, const hlo_frame *frame, int *out_id);
/* Gives `module` what was added, copied; the names have to live as long as it.  Nothing was added: nothing happens. */
WEFT_NODISCARD weft_status *hlo_frame_builder_finish(const hlo_frame_builder *builder, hlo_module *module);

#endif
