/* cli/session.h -- one program on one PJRT plugin: Weft's own, which is part of this command, or any other, by its file.
 * All goes through the C API. */
#ifndef WEFT_CLI_SESSION_H
#define WEFT_CLI_SESSION_H

#include "cli/job.h"
#include "cli/program.h"
#include "hlo/literal.h"
#include "weft/pjrt_extensions.h"

typedef struct cli_session {
  const char *plugin;        /* the plugin's file, or "weft"; borrowed */
  weft_arena *arena;         /* of shapes and literals; borrowed */
  void *library;             /* dlopen's; NULL: our own */
  const PJRT_Api *api;
  const PJRT_Weft_Extension *weft; /* what only Weft offers, or NULL */
  PJRT_Client *client;
  PJRT_LoadedExecutable *loaded;
  PJRT_Executable *exe;
  int devices, params, outputs; /* devices: of this process */
  PJRT_Device *const *device_list; /* [devices] */
  PJRT_Buffer ***inputs;     /* [device][param] */
  PJRT_Buffer ***results;    /* [device][output] */
  const cli_job *job;        /* or NULL */
  const int64_t *param_numbers; /* 0, 1, ...: inputs serve every run, so none is donated */
} cli_session;

typedef struct cli_session_options {
  const char *plugin;        /* a file; NULL: our own */
  int devices, threads;      /* 0: the plugin's default */
  int64_t replicas, partitions;
  const char *memory;        /* Weft's compile option weft_memory, or NULL */
  cli_job *job;              /* the other processes, or NULL: none */
} cli_session_options;

/* Makes a client and compiles.  *session is to be closed also after an error.
 * Errors: NOT_FOUND (no such file, or no plugin), and what the plugin says. */
WEFT_NODISCARD weft_status *cli_session_open(cli_session *session, const cli_session_options *options, const cli_code *code,
                                             int params, weft_arena *arena);
void cli_session_close(cli_session *session);

/* The shape of a parameter on one device: `whole`, or a part of it where the program is partitioned.
 * UNIMPLEMENTED where a plugin does not tell. */
WEFT_NODISCARD weft_status *cli_session_param_shape(cli_session *session, int param, const hlo_shape *whole, const hlo_shape **out);
/* The same arguments on every device; they are copied. */
WEFT_NODISCARD weft_status *cli_session_put(cli_session *session, hlo_literal *const *arguments);
/* One launch, waited for: the program's own time limits end it. */
WEFT_NODISCARD weft_status *cli_session_run(cli_session *session, int launch_id, double *out_ms);
/* The results of the last run: [device * outputs + output]. */
WEFT_NODISCARD weft_status *cli_session_fetch(cli_session *session, hlo_literal **values);

/* The module as it is executed, the caller's to free. */
WEFT_NODISCARD weft_status *cli_session_optimized(cli_session *session, hlo_module **out);

/* Sizes of the compiled program; `bound` -1 where the plugin does not tell. */
typedef struct cli_memory {
  int64_t parameters, outputs, temporaries, bound, code;
} cli_memory;
WEFT_NODISCARD weft_status *cli_session_memory(cli_session *session, cli_memory *out);

#endif
