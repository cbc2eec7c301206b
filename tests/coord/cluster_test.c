/* tests/coord/cluster_test.c -- Cluster detection: the address, number and rank that follow from each launcher's
 * environment. The ports are those that jax 0.10.2 computes from the same variables (OmpiCluster, SlurmCluster). Two
 * faults of jax are not repeated: it puts no brackets around IPv6 addresses, and reads "node[9]" as "node9]". */
#include "test.h"

#include <unistd.h>

#include <weft/coord.h>

static const struct {
  const char *method, *vars[10];
  const char *name, *address;
  int count, id, local;
  const char *error;
} cases[] = {
  {NULL, {"OMPI_MCA_orte_hnp_uri=1531576320.0;tcp://10.96.0.1,10.148.0.1,10.108.0.1:34911", "OMPI_COMM_WORLD_SIZE=4",
          "OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_LOCAL_RANK=1"}, "ompi", "10.96.0.1:62624", 4, 3, 1, NULL},
  {NULL, {"OMPI_MCA_orte_hnp_uri=1314521088.0;tcp6://[fe80::b9b:ac5d:9cf0:b858,2620:10d:c083:150e::3000:2]:43370",
          "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_LOCAL_RANK=0"},
   "ompi", "[fe80::b9b:ac5d:9cf0:b858]:62880", 2, 0, 0, NULL},
  {NULL, {"SLURM_JOB_ID=5", "SLURM_STEP_NODELIST=gpu[003-005,7],login1", "SLURM_NTASKS=8", "SLURM_PROCID=7", "SLURM_LOCALID=1"},
   "slurm", "gpu003:61445", 8, 7, 1, NULL},
  {NULL, {"SLURM_JOB_ID=4097", "SLURM_STEP_NODELIST=n1,n2", "SLURM_NTASKS=2", "SLURM_PROCID=0", "SLURM_LOCALID=0"},
   "slurm", "n1:61441", 2, 0, 0, NULL},
  {NULL, {"SLURM_JOB_ID=1", "SLURM_STEP_NODELIST=node[9]", "SLURM_NTASKS=1", "SLURM_PROCID=0", "SLURM_LOCALID=0"},
   "slurm", "node9:61441", 1, 0, 0, NULL},
  {NULL, {"SLURM_JOB_ID=1", "SLURM_STEP_NODELIST=n1", "SLURM_NTASKS=1", "SLURM_PROCID=0"}, NULL, NULL, 0, 0, 0, "no cluster environment"},
  {"slurm", {"WEFT_NUM_PROCESSES=2", "WEFT_PROCESS_ID=1", "WEFT_COORD_ADDRESS=h:1"}, NULL, NULL, 0, 0, 0, "not started by \"slurm\""},
  {NULL, {"WEFT_NUM_PROCESSES=2", "WEFT_PROCESS_ID=1", "WEFT_COORD_ADDRESS=h:1", "WEFT_LOCAL_PROCESS_ID=1"}, "weft", "h:1", 2, 1, 1, NULL},
  {NULL, {"WEFT_NUM_PROCESSES=2", "WEFT_PROCESS_ID=2", "WEFT_COORD_ADDRESS=h:1"}, NULL, NULL, 0, 0, 0, "process 2 of 2"},
  {NULL, {"WEFT_NUM_PROCESSES=x", "WEFT_PROCESS_ID=2", "WEFT_COORD_ADDRESS=h:1"}, NULL, NULL, 0, 0, 0, "WEFT_NUM_PROCESSES: expected a number"},
  {NULL, {"WEFT_NUM_PROCESSES=2", "WEFT_PROCESS_ID=0"}, NULL, NULL, 0, 0, 0, "set WEFT_COORD_ADDRESS"},
  {"deactivate", {"WEFT_NUM_PROCESSES=2", "WEFT_PROCESS_ID=0"}, NULL, NULL, 0, 0, 0, "switched off"},
  {"mosix", {NULL}, NULL, NULL, 0, 0, 0, "no cluster detection method \"mosix\""},
  {NULL, {"SLURM_JOB_ID=5", "SLURM_STEP_NODELIST=a", "SLURM_NTASKS=8", "SLURM_PROCID=7", "SLURM_LOCALID=1",
          "JAX_COORDINATOR_PORT=1234"}, "slurm", "a:1234", 8, 7, 1, NULL},
  {NULL, {"SLURM_JOB_ID=5", "SLURM_STEP_NODELIST=a", "SLURM_NTASKS=8", "SLURM_PROCID=7", "SLURM_LOCALID=1",
          "JAX_COORDINATOR_ADDRESS=b:99"}, "slurm", "b:99", 8, 7, 1, NULL},
  {NULL, {"PMIX_RANK=1", "PMIX_NAMESPACE=prterun-n-1@1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_SIZE=2",
          "OMPI_COMM_WORLD_LOCAL_RANK=1", "JAX_COORDINATOR_PORT=7"}, "pmix", "127.0.0.1:7", 2, 1, 1, NULL},
  {NULL, {"PMIX_RANK=1", "PMIX_NAMESPACE=a", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_SIZE=2"}, NULL, NULL, 0, 0, 0,
   "cluster \"pmix\" does not say where"},
  {NULL, {"PMI_RANK=2", "PMI_SIZE=3", "MPI_LOCALRANKID=2", "MPI_LOCALNRANKS=3", "JAX_COORDINATOR_PORT=7"}, "hydra", "127.0.0.1:7", 3, 2, 2, NULL},
  {NULL, {"KUBERNETES_SERVICE_HOST=10.0.0.1", "JOB_COMPLETION_INDEX=2", "HOSTNAME=train-2", "WEFT_K8S_SUBDOMAIN=svc", "WEFT_NUM_PROCESSES=4"},
   "k8s", "train-0.svc:55527", 4, 2, 0, NULL},
  {NULL, {"KUBERNETES_SERVICE_HOST=10.0.0.1", "JOB_COMPLETION_INDEX=2", "HOSTNAME=set-workers-0-2", "WEFT_K8S_HOSTS_FILE=coord_test_hosts",
          "WEFT_NUM_PROCESSES=4"}, "k8s", "set-workers-0-0.set:55527", 4, 2, 0, NULL},
  {NULL, {"KUBERNETES_SERVICE_HOST=10.0.0.1", "JOB_COMPLETION_INDEX=2", "HOSTNAME=train-2", "WEFT_K8S_SUBDOMAIN=svc"}, NULL, NULL, 0, 0, 0,
   "set WEFT_NUM_PROCESSES"},
};

/* Unsets every variable of the table: the test may itself run under one of these launchers. */
static void forget_all(void)
{
  for (size_t i = 0; i < WEFT_COUNT(cases); i++)
    for (size_t k = 0; k < 10 && cases[i].vars[k]; k++) {
      char name[64];
      snprintf(name, sizeof name, "%.*s", (int)strcspn(cases[i].vars[k], "="), cases[i].vars[k]);
      unsetenv(name);
    }
}

TEST(each_launcher_is_recognised_and_mistakes_are_named)
{
  FILE *hosts = fopen("coord_test_hosts", "w");

  fprintf(hosts, "127.0.0.1 localhost\n10.0.0.9\tset-workers-0-2.set.default.svc.cluster.local\tset-workers-0-2\n");
  fclose(hosts);
  for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
    weft_coord_cluster c;
    weft_status *st;
    forget_all();
    for (size_t k = 0; k < 10 && cases[i].vars[k]; k++) putenv((char *)(uintptr_t)cases[i].vars[k]);
    st = weft_coord_cluster_detect(cases[i].method, &c);
    if (cases[i].error) {
      T_FAILS(st, cases[i].error);
      continue;
    }
    T_OK(st);
    T_EQ_STR(c.name, cases[i].name);
    T_EQ_STR(c.address, cases[i].address);
    T_EQ_INT(c.process_count, cases[i].count);
    T_EQ_INT(c.process_id, cases[i].id);
    T_EQ_INT(c.local_id, cases[i].local);
  }
  unlink("coord_test_hosts");
}

TEST_MAIN(UNIT(each_launcher_is_recognised_and_mistakes_are_named))
