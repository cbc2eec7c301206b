/* cli/environment.c -- the environment of a process that is to be started (environment.h). */
#include <config.h>

#include "cli/environment.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

extern char **environ;

static bool same_name(const char *var, const char *assignment)
{
  size_t length = strcspn(assignment, "=");

  return strncmp(var, assignment, length) == 0 && var[length] == '=';
}

weft_status *cli_environment_put(cli_environment *env, char *assignment)
{
  WEFT_TRY_ALLOC(assignment);
  for (size_t i = 0; i < env->count; i++) {
    if (!same_name(env->vars[i], assignment)) continue;
    free(env->vars[i]);
    env->vars[i] = assignment;
    return NULL;
  }
  if (!WEFT_RESERVE(env->vars, env->capacity, env->count + 2, 128)) {
    free(assignment);
    return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  }
  env->vars[env->count++] = assignment;
  env->vars[env->count] = NULL;
  return NULL;
}

weft_status *cli_environment_set(cli_environment *env, const char *fmt, ...)
{
  char *assignment = NULL;
  va_list args;

  va_start(args, fmt);
  if (vasprintf(&assignment, fmt, args) < 0) assignment = NULL;
  va_end(args);
  return cli_environment_put(env, assignment);
}

weft_status *cli_environment_inherit(cli_environment *env)
{
  for (char **var = environ; *var; var++) WEFT_TRY(cli_environment_put(env, strdup(*var)));
  return NULL;
}

void cli_environment_free(cli_environment *env)
{
  for (size_t i = 0; i < env->count; i++) free(env->vars[i]);
  free(env->vars);
  *env = (cli_environment){0};
}

bool cli_environment_concerns_job(const char *assignment)
{
  static const char *const beginnings[] = {"WEFT_", "JAX_", "FI_", "XLA_FLAGS=", "PJRT_NAMES_AND_LIBRARY_PATHS="};

  for (size_t i = 0; i < WEFT_COUNT(beginnings); i++)
    if (strncmp(assignment, beginnings[i], strlen(beginnings[i])) == 0) return true;
  return false;
}
