/* coord/cluster.c -- reads this process's place in its job from the environment.  One row of the table for each
 * system. */
#include <config.h>

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <weft/coord.h>

/* Ports by convention: 4096 of them at the end of the range, chosen by the job's id. */
enum { PORT_COUNT = 4096, FIRST_PORT = 65536 - PORT_COUNT, K8S_PORT = 55527 };

/* "" if it is not set. */
static const char *env(const char *name)
{
  const char *value = getenv(name);

  return value ? value : "";
}

static bool has(const char *name) { return *env(name) != '\0'; }

static weft_status *env_number(const char *name, int64_t least, int64_t most, int64_t *out)
{
  char *end;

  errno = 0;
  *out = strtoll(env(name), &end, 10);
  if (end == env(name) || *end || errno || *out < least || *out > most)
    return WEFT_ERR(INVALID_ARGUMENT, "%s: expected a number from %" PRId64 " to %" PRId64 ", got \"%s\"", name, least,
                    most, env(name));
  return NULL;
}

/* Reads a number from the first of the two variables that is set. If none is set, *out stays as it is. */
static weft_status *number_from(const char *first, const char *second, int32_t least, int32_t *out)
{
  const char *name = has(first) ? first : second;
  int64_t value;

  if (!name || !has(name)) return NULL;
  WEFT_TRY(env_number(name, least, INT32_MAX, &value));
  *out = (int32_t)value;
  return NULL;
}

static void set_address(weft_coord_cluster *c, const char *host, size_t length, int64_t port)
{
  bool v6 = memchr(host, ':', length) != NULL;

  snprintf(c->address, sizeof c->address, v6 ? "[%.*s]:%" PRId64 : "%.*s:%" PRId64, (int)WEFT_MIN(length, (size_t)255),
           host, port);
}

/* ---- one function for each system: fills what it knows ---- */

static bool weft_present(void) { return has("WEFT_NUM_PROCESSES") && has("WEFT_PROCESS_ID"); }
static weft_status *weft_fill(weft_coord_cluster *c)
{
  (void)c; /* explicit variables are read for all */
  return NULL;
}

/* OMPI_MCA_orte_hnp_uri=1531576320.0;tcp://10.96.0.1,10.148.0.1:34911 or ...;tcp6://[::1,fe80::1]:49000 */
static bool ompi_present(void) { return has("OMPI_MCA_orte_hnp_uri"); }
static weft_status *ompi_fill(weft_coord_cluster *c)
{
  const char *uri = env("OMPI_MCA_orte_hnp_uri"), *host = strstr(uri, "tcp://");
  char *end;
  int64_t job = strtoll(uri, &end, 10);

  if (end == uri || *end != '.' || job < 0)
    return WEFT_ERR(INVALID_ARGUMENT, "OMPI_MCA_orte_hnp_uri: no job id in \"%s\"", uri);
  if (host) {
    host += strlen("tcp://");
    set_address(c, host, strcspn(host, ",:"), job / PORT_COUNT % PORT_COUNT + FIRST_PORT);
  } else if ((host = strstr(uri, "tcp6://["))) {
    host += strlen("tcp6://[");
    set_address(c, host, strcspn(host, ",]"), job / PORT_COUNT % PORT_COUNT + FIRST_PORT);
  } else {
    return WEFT_ERR(INVALID_ARGUMENT, "OMPI_MCA_orte_hnp_uri: no tcp address in \"%s\"", uri);
  }
  WEFT_TRY(number_from("OMPI_COMM_WORLD_SIZE", NULL, 1, &c->process_count));
  WEFT_TRY(number_from("OMPI_COMM_WORLD_RANK", NULL, 0, &c->process_id));
  return number_from("OMPI_COMM_WORLD_LOCAL_RANK", NULL, 0, &c->local_id);
}

/* SLURM_STEP_NODELIST=gpu[003-005,7],login1: the first is gpu003. */
static bool slurm_present(void)
{
  return has("SLURM_JOB_ID") && has("SLURM_STEP_NODELIST") && has("SLURM_NTASKS") && has("SLURM_PROCID") &&
         has("SLURM_LOCALID");
}
static weft_status *slurm_fill(weft_coord_cluster *c)
{
  const char *list = env("SLURM_STEP_NODELIST"), *rest = list + strcspn(list, ",[");
  const char *first = *rest == '[' ? rest + 1 : ""; /* of the numbers in brackets */
  char host[256];
  int64_t job;

  WEFT_TRY(env_number("SLURM_JOB_ID", 0, INT64_MAX, &job));
  snprintf(host, sizeof host, "%.*s%.*s", (int)WEFT_MIN(rest - list, (ptrdiff_t)128), list,
           (int)WEFT_MIN(strcspn(first, ",-]"), (size_t)32), first);
  set_address(c, host, strlen(host), job % PORT_COUNT + FIRST_PORT);
  WEFT_TRY(number_from("SLURM_NTASKS", NULL, 1, &c->process_count));
  WEFT_TRY(number_from("SLURM_PROCID", NULL, 0, &c->process_id));
  return number_from("SLURM_LOCALID", NULL, 0, &c->local_id);
}

static uint64_t hash_text(const char *text) /* FNV-1a: the same in every process */
{
  uint64_t hash = 0xcbf29ce484222325;

  for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 0x100000001b3;
  return hash;
}

/* Open MPI 5 and other PMIx launchers: the namespace names the job; no variable names the first machine. */
static bool pmix_present(void) { return has("PMIX_RANK") && has("PMIX_NAMESPACE"); }
static weft_status *pmix_fill(weft_coord_cluster *c)
{
  if (has("OMPI_COMM_WORLD_SIZE") && strcmp(env("OMPI_COMM_WORLD_SIZE"), env("OMPI_COMM_WORLD_LOCAL_SIZE")) == 0)
    set_address(c, "127.0.0.1", 9, (int64_t)(hash_text(env("PMIX_NAMESPACE")) % PORT_COUNT) + FIRST_PORT);
  WEFT_TRY(number_from("OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS", 1, &c->process_count));
  WEFT_TRY(number_from("PMIX_RANK", NULL, 0, &c->process_id));
  return number_from("OMPI_COMM_WORLD_LOCAL_RANK", "PMIX_LOCAL_RANK", 0, &c->local_id);
}

/* MPICH, Intel MPI, MVAPICH: on one machine all ranks have the same parent. */
static bool hydra_present(void) { return has("PMI_RANK") && has("PMI_SIZE"); }
static weft_status *hydra_fill(weft_coord_cluster *c)
{
  const char *port = env("PMI_PORT"), *colon = strrchr(port, ':');

  if (colon && colon > port)
    set_address(c, port, (size_t)(colon - port), (int64_t)(hash_text(port) % PORT_COUNT) + FIRST_PORT);
  else if (has("MPI_LOCALNRANKS") && strcmp(env("MPI_LOCALNRANKS"), env("PMI_SIZE")) == 0)
    set_address(c, "127.0.0.1", 9, getppid() % PORT_COUNT + FIRST_PORT);
  WEFT_TRY(number_from("PMI_SIZE", NULL, 1, &c->process_count));
  WEFT_TRY(number_from("PMI_RANK", NULL, 0, &c->process_id));
  return number_from("MPI_LOCALRANKID", NULL, 0, &c->local_id);
}

/* The second label of this pod's full name, which the kubelet writes to /etc/hosts: "10.1.2.3 job-0.svc.ns.svc.local
 * job-0". */
static bool find_subdomain(const char *hostname, char *out, size_t size)
{
  FILE *hosts = fopen(has("WEFT_K8S_HOSTS_FILE") ? env("WEFT_K8S_HOSTS_FILE") : "/etc/hosts", "re");
  char line[1024];
  size_t length = strlen(hostname);
  bool found = false;

  while (hosts && !found && fgets(line, sizeof line, hosts)) {
    char *rest = line;
    for (char *word; (word = strsep(&rest, " \t\n"));) {
      size_t label;
      if (strncmp(word, hostname, length) != 0 || word[length] != '.') continue;
      label = strcspn(word + length + 1, ".");
      if (label == 0 || label >= size) continue;
      memcpy(out, word + length + 1, label);
      out[label] = '\0';
      found = true;
      break;
    }
  }
  if (hosts) fclose(hosts);
  return found;
}

/* Indexed Jobs and JobSets: pods are called JOB-INDEX, and the headless service is their subdomain. */
static bool k8s_present(void) { return has("KUBERNETES_SERVICE_HOST") && has("JOB_COMPLETION_INDEX"); }
static weft_status *k8s_fill(weft_coord_cluster *c)
{
  const char *hostname = env("HOSTNAME"), *index = env("JOB_COMPLETION_INDEX");
  size_t job = strlen(hostname) - WEFT_MIN(strlen(hostname), strlen(index) + 1);
  char subdomain[128], host[256];

  WEFT_TRY(number_from("JOB_COMPLETION_INDEX", NULL, 0, &c->process_id));
  c->local_id = 0; /* a pod has one process */
  if (job == 0 || hostname[job] != '-' || strcmp(hostname + job + 1, index) != 0) return NULL;
  if (has("WEFT_K8S_SUBDOMAIN")) snprintf(subdomain, sizeof subdomain, "%.127s", env("WEFT_K8S_SUBDOMAIN"));
  else if (!find_subdomain(hostname, subdomain, sizeof subdomain)) return NULL;
  snprintf(host, sizeof host, "%.*s-0.%s", (int)WEFT_MIN(job, (size_t)120), hostname, subdomain);
  set_address(c, host, strlen(host), K8S_PORT);
  return NULL;
}

static const struct cluster {
  const char *name;
  bool (*present)(void);
  weft_status *(*fill)(weft_coord_cluster *c);
} clusters[] = {
  {"weft", weft_present, weft_fill},    {"ompi", ompi_present, ompi_fill},    {"slurm", slurm_present, slurm_fill},
  {"pmix", pmix_present, pmix_fill},    {"hydra", hydra_present, hydra_fill}, {"k8s", k8s_present, k8s_fill},
};

/* ---- what wins, and what must be there ---- */

static weft_status *apply_explicit(weft_coord_cluster *c)
{
  const char *address = has("WEFT_COORD_ADDRESS") ? env("WEFT_COORD_ADDRESS") : env("JAX_COORDINATOR_ADDRESS");
  char *colon;
  int64_t port;

  if (*address) {
    snprintf(c->address, sizeof c->address, "%.319s", address);
  } else if (has("JAX_COORDINATOR_PORT") && (colon = strrchr(c->address, ':'))) {
    WEFT_TRY(env_number("JAX_COORDINATOR_PORT", 1, 65535, &port));
    snprintf(colon + 1, sizeof c->address - (size_t)(colon + 1 - c->address), "%" PRId64, port);
  }
  WEFT_TRY(number_from("WEFT_NUM_PROCESSES", NULL, 1, &c->process_count));
  WEFT_TRY(number_from("WEFT_PROCESS_ID", NULL, 0, &c->process_id));
  return number_from("WEFT_LOCAL_PROCESS_ID", NULL, 0, &c->local_id);
}

static weft_status *check(const weft_coord_cluster *c)
{
  if (!*c->address)
    return WEFT_ERR(INVALID_ARGUMENT, "cluster \"%s\" does not say where its first process is: set WEFT_COORD_ADDRESS",
                    c->name);
  if (c->process_count < 1)
    return WEFT_ERR(INVALID_ARGUMENT,
                    "cluster \"%s\" does not say how many processes there are: set WEFT_NUM_PROCESSES", c->name);
  if (c->process_id < 0)
    return WEFT_ERR(INVALID_ARGUMENT, "cluster \"%s\" does not say which process this is: set WEFT_PROCESS_ID",
                    c->name);
  if (c->process_id >= c->process_count)
    return WEFT_ERR(INVALID_ARGUMENT, "cluster \"%s\": process %" PRId32 " of %" PRId32, c->name, c->process_id,
                    c->process_count);
  return NULL;
}

/* No variable says which process this is. Then the job has one process, unless some of the variables of a job are set
 * and others are missing. */
static weft_status *check_not_forgotten(void)
{
  static const char *const wanted[] = {"WEFT_COORD_ADDRESS", "WEFT_NUM_PROCESSES", "WEFT_PROCESS_ID"};
  const char *set = NULL, *missing = NULL;

  for (size_t i = 0; i < WEFT_COUNT(wanted); i++) {
    bool says_alone = strcmp(wanted[i], "WEFT_NUM_PROCESSES") == 0 && strcmp(env(wanted[i]), "1") == 0;
    if (has(wanted[i]) && !says_alone) set = wanted[i];
    else if (!has(wanted[i])) missing = wanted[i];
  }
  if (strcmp(env("WEFT_NUM_PROCESSES"), "1") == 0 || !set) return WEFT_ERR(NOT_FOUND, "no cluster environment");
  if (!missing) missing = "WEFT_PROCESS_ID";
  return WEFT_ERR(INVALID_ARGUMENT, "%s is set, so this is a process of a job, and %s is not: set it%s", set, missing,
                  strcmp(missing, "WEFT_PROCESS_ID") == 0 ? " to this process's number, from 0" : "");
}

weft_status *weft_coord_cluster_detect(const char *method, weft_coord_cluster *out_cluster)
{
  bool any = !method || !*method;

  *out_cluster = (weft_coord_cluster){.name = "", .process_count = 0, .process_id = -1, .local_id = -1};
  for (size_t i = 0; i < WEFT_COUNT(clusters); i++) {
    if (any ? !clusters[i].present() : strcmp(method, clusters[i].name) != 0) continue;
    if (!clusters[i].present()) return WEFT_ERR(NOT_FOUND, "this process was not started by \"%s\"", method);
    out_cluster->name = clusters[i].name;
    WEFT_TRY(clusters[i].fill(out_cluster));
    WEFT_TRY(apply_explicit(out_cluster));
    return check(out_cluster);
  }
  if (any) return check_not_forgotten();
  if (strcmp(method, "deactivate") == 0) return WEFT_ERR(NOT_FOUND, "cluster detection is switched off");
  return WEFT_ERR(INVALID_ARGUMENT, "no cluster detection method \"%s\"", method);
}
