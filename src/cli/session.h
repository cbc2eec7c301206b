/* cli/session.h -- one program on one PJRT plugin: Weft's own, which is linked into this command, or another one
 * from a file. All calls go through the C API. */
#ifndef WEFT_CLI_SESSION_H
#define WEFT_CLI_SESSION_H

#include "cli/job.h"
#include "cli/program.h"
#include "hlo/literal.h"
#include "weft/pjrt_extensions.h"

typedef struct cli_session {
  const char *plugin;        /* the plugin's file, or "weft"; borrowed */
  weft_arena *arena;         /* of shapes and literals; borrowed */
  void *library;             /* from dlopen; NULL: this command's own plugin */
  const PJRT_Api *api;
  const PJRT_Weft_Extension *weft; /* the extension that only Weft offers, or NULL */
  PJRT_Client *client;
  PJRT_LoadedExecutable *loaded;
  PJRT_Executable *exe;
  int devices, params, outputs; /* devices of this process */
  PJRT_Device *const *device_list; /* [devices] */
  PJRT_Buffer ***inputs;     /* [device][param] */
  PJRT_Buffer ***results;    /* [device][output] */
  const cli_job *job;        /* or NULL */
  const int64_t *param_numbers; /* 0, 1, ...: every run uses the same inputs, so none is donated */
} cli_session;

typedef struct cli_session_options {
  const char *plugin;        /* a file; NULL: this command's own */
  int devices, threads;      /* 0: the plugin's default */
  int first_device;          /* of the machine's devices, where processes share a machine's GPUs */
  int64_t replicas, partitions;
  const char *memory, *cpus; /* the values of Weft's compile options weft_memory and weft_cpu, or NULL */
  cli_job *job;              /* the other processes of the job; NULL: there are none */
} cli_session_options;

/* Makes a client and compiles the program, or loads it if it is compiled already. *session must be closed also after an
 * error. Errors: NOT_FOUND (no such file, or the file is no plugin), and those of the plugin. */
WEFT_NODISCARD weft_status *cli_session_open(cli_session *session, const cli_session_options *options,
                                             const cli_code *code, int params, weft_arena *arena);
void cli_session_close(cli_session *session);

/* The shape of a parameter on one device: `whole`, or a part of it if the program is partitioned. UNIMPLEMENTED if
 * the plugin does not say. */
WEFT_NODISCARD weft_status *cli_session_param_shape(cli_session *session, int param, const hlo_shape *whole,
                                                    const hlo_shape **out);
/* Copies the same arguments to every device. */
WEFT_NODISCARD weft_status *cli_session_put(cli_session *session, hlo_literal *const *arguments);
/* Launches the program once and waits for it. The time limits of the program itself end the wait. */
WEFT_NODISCARD weft_status *cli_session_run(cli_session *session, int launch_id, double *out_ms);
/* The results of the last run: [device * outputs + output]. */
WEFT_NODISCARD weft_status *cli_session_fetch(cli_session *session, hlo_literal **values);

/* The compiled program as bytes, in the session's arena. */
WEFT_NODISCARD weft_status *cli_session_serialize(cli_session *session, const void **out_bytes, size_t *out_size);

/* The module as it is executed; the caller frees it. */
WEFT_NODISCARD weft_status *cli_session_optimized(cli_session *session, hlo_module **out);

/* The sizes of the compiled program; `bound` is -1 if the plugin does not say. */
typedef struct cli_memory {
  int64_t parameters, outputs, temporaries, bound, code;
} cli_memory;
WEFT_NODISCARD weft_status *cli_session_memory(cli_session *session, cli_memory *out);

#endif
