/* cli/protection.c -- describes how a job is protected. */
#include <config.h>

#include <inttypes.h>

#include "cli/job.h"

static void print_count(FILE *out, const char *by, int64_t count, bool *any)
{
  if (count == 0) return;
  fprintf(out, "%s %" PRId64 " by %s", *any ? "," : "", count, by);
  *any = true;
}

void cli_print_protection(FILE *out, const weft_coord_protection *p)
{
  bool any = false;

  fprintf(out, "protected by %s%s%s; ", p->has_secret ? "a secret" : "no secret", p->has_tls ? ", TLS" : "",
          p->asks_certificates ? " with client certificates" : "");
  if (p->lets_anyone_in) fprintf(out, "clients without it are let in FROM ANYWHERE");
  else if (p->hosts > 0)
    fprintf(out,
            "clients without it are let in by the user id on this machine, and from %" PRId64 " addresses of hosts",
            p->hosts);
  else fprintf(out, "clients without it are let in by the user id, on this machine only");
  fprintf(out, "\nconnections let in:");
  print_count(out, "secret", p->by_secret, &any);
  print_count(out, "certificate", p->by_certificate, &any);
  print_count(out, "user id", p->by_uid, &any);
  print_count(out, "host", p->by_host, &any);
  print_count(out, "nothing, as everyone is", p->by_anyone, &any);
  fprintf(out, "%s; not yet: %" PRId64 "; calls refused: %" PRId64 "\n", any ? "" : " none", p->strangers,
          p->refused_calls);
}

weft_status *cli_print_job(FILE *out)
{
  weft_coord_agent_options options;
  weft_coord_cluster place;
  WEFT_AUTO(weft_coord_agent) agent = NULL;
  WEFT_AUTO(weft_coord_status_report) report = NULL;

  WEFT_TRY(weft_coord_agent_options_load(&options));
  if (!*options.address) {
    WEFT_TRY_NOTE(weft_coord_cluster_detect(NULL, &place),
                  "no job in the environment: WEFT_COORD_ADDRESS names its coordination service");
    options.address = place.address;
  }
  options.init_timeout_ns = 10 * WEFT_NS_PER_S;
  options.observes_at_once = true;
  WEFT_TRY(weft_coord_agent_new(&options, &agent));
  WEFT_TRY_NOTE(weft_coord_agent_observe(agent), "asking the coordination service at %s", options.address);
  WEFT_TRY(weft_coord_agent_status(agent, &report));
  fprintf(out, "job of %zu processes, coordinated at %s\n", report->task_count, options.address);
  if (report->is_partial) fprintf(out, "its service does not say how it is protected\n");
  else cli_print_protection(out, &report->protection);
  return NULL;
}
