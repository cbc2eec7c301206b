/* pjrt/serialize.c -- programs as bytes: serialised, loaded again, and moved from one client to another. The bytes hold
 * the machine code (runtime/saved.h) and, as the note, the compile options. */
#include <config.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pjrt/internal.h"
#include "runtime/saved.h"

static void free_serialized(PJRT_SerializedExecutable *serialized) { free(serialized); }

PJRT_Error *pjrt_Executable_Serialize(PJRT_Executable_Serialize_Args *args)
{
  const pjrt_program *p = args->executable->program;
  void *bytes;
  size_t size;

  PJRT_TRY(weft_executable_save(p->exe, p->cpus, p->fingerprint, p->options, p->options_size, &bytes, &size));
  args->serialized_bytes = bytes;
  args->serialized_bytes_size = size;
  args->serialized_executable = bytes;
  args->serialized_executable_deleter = free_serialized;
  return NULL;
}

/* `options_data` NULL: those with which the program was compiled. */
static weft_status *load(PJRT_Client *client, const void *bytes, size_t size, const char *options_data,
                         size_t options_size, pjrt_program **out_program)
{
  WEFT_AUTO(pjrt_program) p = NULL;
  weft_saved saved;
  pjrt_options options;

  WEFT_TRY(weft_saved_open(bytes, size, &saved));
  if (!options_data) {
    options_data = saved.note;
    options_size = saved.note_size;
  }
  WEFT_TRY(pjrt_program_new(options_data, options_size, &p));
  WEFT_TRY(pjrt_options_read(options_data, options_size, &options));
  weft_compile_options compile_options = pjrt_compile_options(&options);
  weft_status *st = weft_executable_load(client->platform, &saved, &compile_options, &p->exe);
  if (!st) st = pjrt_program_describe(p, pjrt_target_of(client), &options);
  pjrt_options_fini(&options);
  WEFT_TRY(st);
  snprintf(p->fingerprint, sizeof p->fingerprint, "%s", saved.fingerprint);
  *out_program = WEFT_MOVE(p);
  return NULL;
}

PJRT_Error *pjrt_Executable_DeserializeAndLoad(PJRT_Executable_DeserializeAndLoad_Args *args)
{
  bool overridden = PJRT_HAS(args, overridden_serialized_compile_options_size) &&
                    args->overridden_serialized_compile_options;
  pjrt_program *program;

  PJRT_TRY(load(args->client, args->serialized_executable, args->serialized_executable_size,
                overridden ? args->overridden_serialized_compile_options : NULL,
                overridden ? args->overridden_serialized_compile_options_size : 0, &program));
  return pjrt_error(pjrt_loaded_new(args->client, program, &args->loaded_executable));
}

/* A program that was compiled for another client, or ahead of time, is made anew from its machine code: memory plan
 * and thunks belong to a client's devices and threads. */
PJRT_Error *pjrt_Client_Load(PJRT_Client_Load_Args *args)
{
  const pjrt_program *p = args->executable->program;
  bool overridden = PJRT_HAS(args, compile_options_size) && args->compile_options && args->compile_options_size;
  pjrt_program *program;
  void *bytes;
  size_t size;

  if (p->client_serial == args->client->serial && !overridden)
    return pjrt_error(
      pjrt_loaded_new(args->client, pjrt_program_retain(args->executable->program), &args->loaded_executable));
  PJRT_TRY(weft_executable_save(p->exe, NULL, p->fingerprint, p->options, p->options_size, &bytes, &size));
  weft_status *st = load(args->client, bytes, size, overridden ? args->compile_options : NULL,
                         overridden ? args->compile_options_size : 0, &program);
  free(bytes);
  PJRT_TRY(st);
  return pjrt_error(pjrt_loaded_new(args->client, program, &args->loaded_executable));
}
