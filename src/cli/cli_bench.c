/* cli/cli_bench.c -- `weft bench collectives`: the options of collective/bench.h. */
#include <config.h>

#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "collective/bench.h"
#include "platform/registry.h"
#include "runtime/runtime_internal.h"

/* ---- devices ---- */

/* coll_bench_devices: `ctx` is a place for the platform. */
static weft_platform *platform_in(void *ctx) { return *(weft_platform **)ctx; }
static weft_device *device_of(void *ctx, int device) { return weft_platform_device(platform_in(ctx), device); }

static weft_status *open_platform(void *ctx, int count, weft_comm_spec *spec)
{
  WEFT_TRY(plat_new(&(weft_platform_options){.device_count = count}, ctx));
  weft_platform *platform = platform_in(ctx);
  if (weft_platform_device_count(platform) < count)
    return WEFT_ERR(FAILED_PRECONDITION, "%d ranks need %d devices; platform %s has %d", count, count,
                    weft_platform_name(platform), weft_platform_device_count(platform));
  spec->communicator = platform->ops->communicator;
  spec->communicator_ctx = platform;
  return NULL;
}

static void close_platform(void *ctx) { weft_platform_release(WEFT_MOVE(*(weft_platform **)ctx)); }

static bool moves(void *ctx, weft_coll_kind kind, weft_dtype dtype, weft_reduction reduction)
{
  return weft_platform_moves(platform_in(ctx), kind, dtype, reduction);
}

static weft_status *take(void *ctx, int device, int64_t bytes, void **out_data)
{
  return rt_device_take(device_of(ctx, device), 0, bytes, RT_ANYONE, out_data);
}

static void give(void *ctx, int device, void *data, int64_t bytes)
{
  rt_device_give(device_of(ctx, device), 0, data, bytes);
}

static weft_status *write_to(void *ctx, int device, void *to, const void *host, int64_t bytes)
{
  return weft_device_write(device_of(ctx, device), NULL, to, host, bytes);
}

static weft_status *read_from(void *ctx, int device, void *host, const void *from, int64_t bytes)
{
  return weft_device_read(device_of(ctx, device), NULL, host, from, bytes);
}

static weft_platform *opened; /* in the process of the ranks */
static coll_bench_devices devices_of_platform = {.open = open_platform, .close = close_platform, .moves = moves, .take = take,
                                                 .give = give, .write = write_to, .read = read_from, .ctx = &opened};

/* The platform is opened later, in the processes of the ranks. */
static weft_status *choose_platform(const char *name, coll_bench_options *o)
{
  const weft_platform_ops *ops;

  if (!name) return NULL;
  setenv("WEFT_PLATFORM", name, 1);
  WEFT_TRY(plat_default(&ops));
  if (!ops->communicator) return NULL; /* its arrays are in the host's memory */
  if (o->tune) return WEFT_ERR(INVALID_ARGUMENT, "--tune is for ranks without devices");
  if (o->ops && (strstr(o->ops, "memcpy") || strstr(o->ops, "wait")))
    return WEFT_ERR(INVALID_ARGUMENT, "memcpy and wait are measured on the host only");
  devices_of_platform.name = name;
  o->devices = &devices_of_platform;
  return NULL;
}

/* ---- options ---- */

static weft_status *set_how(void *out, const char *text)
{
  static const char *const names[] = {
      [COLL_BENCH_DEVICES] = "devices", [COLL_BENCH_SHM] = "shm", [COLL_BENCH_FABRIC] = "fabric"};

  for (size_t i = 0; i < WEFT_COUNT(names); i++)
    if (strcmp(names[i], text) == 0) {
      *(coll_bench_how *)out = (coll_bench_how)i;
      return NULL;
    }
  return WEFT_ERR(INVALID_ARGUMENT, "expected devices, shm or fabric, got \"%s\"", text);
}

static weft_status *set_ops(void *out, const char *text)
{
  WEFT_TRY(coll_bench_check_ops(text));
  *(const char **)out = text;
  return NULL;
}

static weft_status *set_scale(void *out, const char *text)
{
  char *end;
  double value = strtod(text, &end);

  if (end == text || *end || !(value > 0))
    return WEFT_ERR(INVALID_ARGUMENT, "expected a number above 0, got \"%s\"", text);
  *(double *)out = value;
  return NULL;
}

static weft_status *parse_options(int argc, char **argv, coll_bench_options *o, bool *simulate, bool *out_helped)
{
  int64_t ranks = o->ranks;
  const char *platform = NULL;
  const cli_option options[] = {
      {"--how", "HOW", "what ranks are: devices (threads of one process), shm (processes that share memory; the\n"
                       "default), fabric (processes that talk through libfabric)", .set = set_how, .out = &o->how},
      {"--platform", "NAME", "the devices that ranks have: cpu (the default) or cuda, where rank r has GPU r", .type = WEFT_OPT_STRING, .out = &platform},
      {"--ranks", "N", "how many (default 2)", .type = WEFT_OPT_INT, .out = &ranks, .most = COLL_BENCH_MOST_RANKS},
      {"--ops", "LIST", "of all-reduce,all-gather,reduce-scatter,all-to-all,broadcast,send,barrier (default: these);\n"
                        "besides memcpy (of every rank's vector) and wait (CPU time of a process that waits)", .set = set_ops, .out = &o->ops},
      {"--min-bytes", "N", "sizes, each four times the last (default 64 to 16M)", .type = WEFT_OPT_BYTES, .out = &o->min_bytes},
      {"--max-bytes", "N", NULL, .type = WEFT_OPT_BYTES, .out = &o->max_bytes},
      {"--scale", "X", "times the usual number of iterations", .set = set_scale, .out = &o->scale},
      {"--tune", "FILE", "measure every algorithm and write the table for WEFT_COLLECTIVE_TABLE", .type = WEFT_OPT_STRING, .out = &o->tune},
      {"--simulate", NULL, "instead: what every algorithm costs on the simulated network, for 64 to 65536 ranks, 8 a node",
       .out = simulate},
  };
  const cli_command command = {"bench", "collectives [OPTIONS]",
                               "Measures collectives, one line for each operation and size; tunes their algorithm table.",
                               .options = options, .option_count = WEFT_COUNT(options)};

  WEFT_TRY(cli_parse_options(&command, &argc, argv, out_helped));
  if (*out_helped) return NULL;
  if (argc != 2 || strcmp(argv[1], "collectives") != 0)
    return WEFT_ERR(INVALID_ARGUMENT, "expected `collectives`; see `weft bench --help`");
  if (ranks < 1) return WEFT_ERR(INVALID_ARGUMENT, "--ranks: expected 1 to %d", (int)COLL_BENCH_MOST_RANKS);
  if (o->min_bytes < 4 || o->max_bytes < o->min_bytes || o->max_bytes > INT64_C(1) << 32)
    return WEFT_ERR(INVALID_ARGUMENT, "sizes from %s to %s: expected 4 bytes to 4 GiB, the lesser first",
                    WEFT_BYTES(o->min_bytes), WEFT_BYTES(o->max_bytes));
  o->ranks = (int)ranks;
  return choose_platform(platform, o);
}

int cli_bench_main(int argc, char **argv)
{
  coll_bench_options options = {.how = COLL_BENCH_SHM, .ranks = 2, .min_bytes = 64, .max_bytes = 16 << 20, .scale = 1};
  bool simulate = false, helped = false;
  weft_status *st = parse_options(argc, argv, &options, &simulate, &helped);

  if (st || helped) return cli_report("bench", st);
  return (simulate ? coll_bench_simulate() : coll_bench_run(&options)) == 0 ? CLI_OK : CLI_FAILED;
}
