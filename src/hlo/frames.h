/* hlo/frames.h -- call stacks in the source that instructions come from, as tables that a module's instructions
 * share.  hlo_metadata.stack_frame_id names the innermost call of a stack.  What a file says is kept and printed
 * again without checks; hlo_frame_get checks ids when it is called. */
#ifndef WEFT_HLO_FRAMES_H
#define WEFT_HLO_FRAMES_H

#include "hlo/hlo.h"

struct hlo_stack_frames {
  int file_count, function_count, location_count, frame_count; /* ids begin at 1: id i is at index i - 1 */
  const char **files, **functions;
  struct hlo_file_location { int file, function, line, column, end_line, end_column; } *locations;
  /* parent as in text: 1 more than the id of the calling frame, 1 if there is none */
  struct hlo_stack_frame { int location, parent; } *frames;
};

/* One call: its place, the function that contains it, and the frame that called this function. */
typedef struct hlo_frame {
  const char *function, *file; /* "" if the tables do not have it */
  int line, column, end_line, end_column;
  int parent; /* id of the calling frame; 0: none */
} hlo_frame;

/* False if the module has no frame of that id.  A calling frame has a smaller id than the frames that it calls; a
 * parent with any other id is taken as none. */
bool hlo_frame_get(const hlo_module *module, int id, hlo_frame *out_frame);

/* The place in the source that an instruction comes from: that of its metadata or, without it, that of its innermost
 * frame.  False if neither is known. */
bool hlo_source_place(const hlo_instr *instr, const char **out_file, int *out_line);

/* Builds tables that have each name, location and frame once. */
typedef struct hlo_frame_builder hlo_frame_builder;
WEFT_NODISCARD weft_status *hlo_frame_builder_new(weft_arena *arena /* borrowed as long as the builder is used */,
                                                  hlo_frame_builder **out_builder);
/* Adds or finds a frame; gives its id.  Names are borrowed until hlo_frame_builder_finish and compared as pointers. */
WEFT_NODISCARD weft_status *hlo_frame_add(hlo_frame_builder *builder, const hlo_frame *frame, int *out_id);
/* Copies the tables into `module`.  The names are not copied: they must live as long as `module`.  Without any frame
 * added this does nothing. */
WEFT_NODISCARD weft_status *hlo_frame_builder_finish(const hlo_frame_builder *builder, hlo_module *module);

#endif
